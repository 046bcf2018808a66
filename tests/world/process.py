"""Real worker processes that a test starts, kills, freezes, wakes and listens to."""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Self

from tests.support.postgres import wait_until
from tests.support.processes import ROOT, Process
from tests.world.topic import History
from tests.world.wanted import Topic, Wanted

RUN = ("holdfast", "run", "tests.world.worker:app")
OPERATOR = ("tests.world.queue_operator",)
APPENDER = ("tests.world.appender",)

START_SECONDS = 30.0
STOP_SECONDS = 60.0
TOLD_LINES = 100


class ChildProcess:
    """`python -m` with these arguments and variables; its end is certain when the block ends."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            **variables,
        }
        self.lines: list[str] = []
        self._process = Process(arguments, cwd=ROOT, env=env, merge_stderr=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"worker {self.pid}, code {self._process.poll()}, said:\n" + "\n".join(
            self.lines[-TOLD_LINES:]
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Stops the process where it stands, and returns when it does."""
        self.send(signal.SIGSTOP)
        self._process.wait_stopped(STOP_SECONDS)

    def wake(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9. All it has said before is in `lines` afterwards. May be called again."""
        self._process.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_seconds: float = STOP_SECONDS) -> int:
        try:
            code = self._process.wait(timeout_seconds)
        except TimeoutError as error:
            self.send(signal.SIGABRT)  # It tells where its threads stand.
            self._process.wait(timeout_seconds)
            self._reader.join(timeout_seconds)
            raise TimeoutError(repr(self)) from error
        self._reader.join(timeout_seconds)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            pipe.close()
        return code

    def times_said(self, start: str) -> int:
        """How many lines begin with `start`, until now."""
        return sum(line.startswith(start) for line in list(self.lines))

    def said(self, start: str, *, times: int = 1) -> bool:
        return self.times_said(start) >= times

    def wait_until_said(self, start: str, *, times: int = 1) -> None:
        """Returns when a line begins with `start`; fails at once if the process ends."""
        wait_until(
            lambda: self.said(start, times=times) or not self.is_running,
            START_SECONDS,
            f"{start!r} from {self!r}",
        )
        if not self.said(start, times=times):
            self._reader.join(STOP_SECONDS)
            assert self.said(start, times=times), repr(self)

    def _read(self) -> None:
        for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\n"))


class WorkerProcess(ChildProcess):
    """`holdfast run`, or another command, with what a test wants of it."""

    def __init__(self, wanted: Wanted, *options: str, command: Sequence[str] = RUN) -> None:
        super().__init__([*command, *options], wanted.to_environment())


class Producer(ChildProcess):
    """Produces a share of a history, as far as it is allowed to."""

    def __init__(self, topic: Topic, history: History, *, share: int, shares: int) -> None:
        numbers = (history.events, history.accounts, share, shares)
        arguments = ("tests.world.producer", topic.bootstrap, topic.name, *map(str, numbers))
        super().__init__(arguments, {})

    def allow(self, until: int) -> None:
        """It may go on up to this number of the history."""
        self._process.stdin.write(f"{until}\n".encode())
        self._process.stdin.flush()
