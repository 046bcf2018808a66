"""Several worker processes under one command: `holdfast run --processes N`.

Threads share one interpreter, so several processes use more processors. Each worker process runs
its share of the projections, and is started again when it dies. When the parent process ends, in
whatever way, so do the worker processes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from holdfast.errors import ConfigError

SHARE_VARIABLE = "HOLDFAST_PART"
"""Tells a worker process its number, the number of processes, and its parent: `0/2/1234`."""

EXIT_FAULTED = 3

CHECK_INTERVAL_SECONDS = 0.1
"""Interval at which the parent checks for signals and for processes that have ended."""

FIRST_RESTART_DELAY_SECONDS = 1.0
MAX_RESTART_DELAY_SECONDS = 30.0
"""Delays before a process that has died is started again, doubled while it dies soon."""

LONG_LIFE_SECONDS = 60.0
"""Age at which the death of a process does not count as soon."""

KILL_GRACE_SECONDS = 5.0
"""Time that a process has beyond its own stop timeout, before it is killed."""


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """The share of process `number` of `of`; `parent` is the process that has started it."""

    number: int
    of: int
    parent: int

    @property
    def is_orphaned(self) -> bool:
        return os.getppid() != self.parent


def own_share() -> ProcessShare | None:
    """The share of this process, if it is one of several."""
    text = os.environ.pop(SHARE_VARIABLE, None)  # Not for the children of this process.
    if text is None:
        return None
    numbers = re.fullmatch(r"(\d+)/(\d+)/(\d+)", text, re.ASCII)
    if numbers is None:
        raise ConfigError(f"{SHARE_VARIABLE} is {text!r}; unset it, only --processes may set it")
    return ProcessShare(*map(int, numbers.groups()))


class _WorkerProcess:
    """One worker process, and those that replace it when it dies."""

    def __init__(self, number: int, of: int, say: Callable[[str], None]) -> None:
        self._number, self._of, self._say = number, of, say
        self._delay_seconds = FIRST_RESTART_DELAY_SECONDS
        self._restart_at: float | None = None
        self._started_at = 0.0
        self.code: int | None = None
        """Its exit code, once it has ended for good."""
        self.start()

    def start(self) -> None:
        share = f"{self._number}/{self._of}/{os.getpid()}"
        # In its own session: a Ctrl-C reaches only the parent, which passes it on.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *sys.argv[1:]],
            env={**os.environ, SHARE_VARIABLE: share},
            start_new_session=True,
        )
        self._started_at, self._restart_at = time.monotonic(), None
        self._say(f"process {self._number + 1} of {self._of} is {self.process.pid}")

    def check(self, *, may_restart: bool) -> None:
        """Notices its end, and starts it again after the delay."""
        if self.code is not None:
            return
        if self._restart_at is not None:
            if not may_restart:
                self.code = 0
            elif time.monotonic() >= self._restart_at:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            return
        if code == EXIT_FAULTED or not may_restart:
            # SIGTERM ends a process that does not handle signals yet: it had not begun.
            self.code = 0 if code == -signal.SIGTERM else code
            return
        if time.monotonic() - self._started_at >= LONG_LIFE_SECONDS:
            self._delay_seconds = FIRST_RESTART_DELAY_SECONDS
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        self._say(f"process {self.process.pid} {how}; starts again in {self._delay_seconds:g} s")
        self._restart_at = time.monotonic() + self._delay_seconds
        self._delay_seconds = min(2 * self._delay_seconds, MAX_RESTART_DELAY_SECONDS)

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)


class ProcessGroup:
    """The worker processes of one command, until all have ended."""

    def __init__(self, count: int, *, stop_seconds: float, say: Callable[[str], None]) -> None:
        self._stop_seconds, self._say = stop_seconds, say
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._workers = [_WorkerProcess(number, count, say) for number in range(count)]

    def run(self, *, exit_on_fault: bool) -> int:
        """Blocks until the last process has ended; returns the exit code of the command."""
        sent, kill_at = 0, float("inf")
        while any(worker.code is None for worker in self._workers):
            for worker in self._workers:
                worker.check(may_restart=not sent)
            if exit_on_fault and any(w.code == EXIT_FAULTED for w in self._workers):
                self._signals = max(self._signals, 1)
            if self._signals > sent:
                if not sent:
                    self._say("stopping")
                    kill_at = time.monotonic() + self._stop_seconds + KILL_GRACE_SECONDS
                self._send(signal.SIGTERM)
                sent = self._signals
            if time.monotonic() >= kill_at:
                self._send(signal.SIGKILL)
            time.sleep(CHECK_INTERVAL_SECONDS)
        codes = [worker.code for worker in self._workers]
        if EXIT_FAULTED in codes:
            return EXIT_FAULTED
        return 0 if not any(codes) else 1

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _send(self, number: int) -> None:
        for worker in self._workers:
            worker.send(number)
