"""A worker process of the demo: the real `holdfast run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STOP_TIMEOUT_SECONDS = 30
MAX_LOG_CHARACTERS = 2_000


class Worker:
    """Runs `holdfast run bank:app` in a folder, until it is stopped or killed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "worker.log"
        self._log = self._path.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "run", "bank:app"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # A Ctrl-C is for the demo, which stops its worker itself.
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """kill -9: the process gets no chance to clean up."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode
        finally:
            self._log.close()

    def end(self) -> None:
        """Kills it if it still runs."""
        if self.exit_code is None:
            self.kill()

    def log(self) -> str:
        """The end of its log."""
        return self._path.read_text(encoding="utf-8", errors="replace")[-MAX_LOG_CHARACTERS:]
