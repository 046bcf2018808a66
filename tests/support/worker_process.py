"""Real worker processes that a test starts, kills, freezes, wakes and listens to."""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import Self

from holdfast.runtime.limits import LIMITS
from tests.support import worker
from tests.support.postgres import wait_until
from tests.support.processes import ROOT, Process

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
        """How many lines begin with `start` so far."""
        return sum(line.startswith(start) for line in list(self.lines))

    def said(self, start: str, *, times: int = 1) -> bool:
        return self.times_said(start) >= times

    def wait_until_said(self, start: str, *, times: int = 1) -> None:
        """Returns when so many lines begin with `start`; fails at once if the process ends."""
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
    """`holdfast run` in a process of its own."""

    def __init__(
        self,
        url: str,
        *options: str,
        slow_seconds: float = 0.0,
        batch_events: int = LIMITS.batch_events,
        writes: bool = False,
        shards: int = 1,
        max_failures: int = 0,
        command: Sequence[str] = ("holdfast", "run", "tests.support.worker:app"),
    ) -> None:
        super().__init__(
            [*command, *options],
            {
                worker.URL: url,
                worker.SLOW_SECONDS: str(slow_seconds),
                worker.BATCH_EVENTS: str(batch_events),
                worker.MAX_FAILURES: str(max_failures),
                worker.SHARDS: str(shards),
                **({worker.WRITES: "yes"} if writes else {}),
            },
        )
