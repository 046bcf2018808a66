"""Real worker processes that a test starts, kills, freezes, wakes and listens to."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.support.postgres import wait_until

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
STOP_SECONDS = 30.0


class WorkerProcess:
    """`python -m MODULE …` in a process of its own; its end is certain when the block ends."""

    def __init__(self, *arguments: str, module: str = "tests.support.worker") -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal is meant for the tests
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"worker {self.pid}, code {self._process.poll()}, said:\n" + "\n".join(
            self.lines[-40:]
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
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

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
        code = self._process.wait(timeout_seconds)
        self._reader.join(timeout_seconds)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        return code

    def said(self, start: str, *, times: int = 1) -> bool:
        return sum(line.startswith(start) for line in list(self.lines)) >= times

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
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
