"""Several worker processes under one: `holdfast run --processes N`.

Each takes its part of the projections, so that they use all processors: threads share one
interpreter. A process that dies is started again. When this one ends, in whatever way, so do they.
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

PART = "HOLDFAST_PART"
"""Which part a process takes of how many, and whose child it is: `0/2/1234`."""

EXIT_FAULTED = 3
LOOK_SECONDS = 0.1
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
"""Before a process is started again that has died: doubled as long as it dies soon."""
LONG_LIFE_SECONDS = 60.0
GRACE_SECONDS = 5.0
"""What a process has on top of its own time to stop, before it is killed."""


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """One of so many parts; `parent` is the process that has started this one."""

    number: int
    of: int
    parent: int

    @property
    def is_orphaned(self) -> bool:
        return os.getppid() != self.parent


def own_part() -> ProcessShare | None:
    """Which part this process takes, if it is one of several."""
    text = os.environ.pop(PART, None)  # It is not for what this process starts in its turn.
    if text is None:
        return None
    numbers = re.fullmatch(r"(\d+)/(\d+)/(\d+)", text, re.ASCII)
    if numbers is None:
        raise ConfigError(f"{PART} is {text!r}; it is set by --processes, and not for people")
    return ProcessShare(*map(int, numbers.groups()))


class _Member:
    """One process, and those that took its place."""

    def __init__(self, number: int, of: int, say: Callable[[str], None]) -> None:
        self._number, self._of, self._say = number, of, say
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._restart_at: float | None = None
        self._started_at = 0.0
        self.code: int | None = None
        """How it has ended for good."""
        self.start()

    def start(self) -> None:
        part = f"{self._number}/{self._of}/{os.getpid()}"
        # In a session of its own: a Ctrl-C is for the one that has started it, which passes it on.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *sys.argv[1:]],
            env={**os.environ, PART: part},
            start_new_session=True,
        )
        self._started_at, self._restart_at = time.monotonic(), None
        self._say(f"process {self._number + 1} of {self._of} is {self.process.pid}")

    def look(self, *, may_restart: bool) -> None:
        """Takes note of an end, and starts it again when the time has come."""
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
            # One that was stopped before it could listen to signals had not begun.
            self.code = 0 if code == -signal.SIGTERM else code
            return
        if time.monotonic() - self._started_at >= LONG_LIFE_SECONDS:
            self._pause_seconds = FIRST_PAUSE_SECONDS
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        self._say(f"process {self.process.pid} {how}; starts again in {self._pause_seconds:g} s")
        self._restart_at = time.monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)


class ProcessGroup:
    """The processes of one command, until all have ended."""

    def __init__(self, count: int, *, stop_seconds: float, say: Callable[[str], None]) -> None:
        self._stop_seconds, self._say = stop_seconds, say
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._members = [_Member(number, count, say) for number in range(count)]

    def run(self, *, exit_on_fault: bool) -> int:
        """Blocks until the last process has ended; returns the code to end with."""
        sent, kill_at = 0, float("inf")
        while any(member.code is None for member in self._members):
            for member in self._members:
                member.look(may_restart=not sent)
            if exit_on_fault and any(m.code == EXIT_FAULTED for m in self._members):
                self._signals = max(self._signals, 1)
            if self._signals > sent:
                if not sent:
                    self._say("stopping")
                    kill_at = time.monotonic() + self._stop_seconds + GRACE_SECONDS
                self._send(signal.SIGTERM)
                sent = self._signals
            if time.monotonic() >= kill_at:
                self._send(signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
        codes = [member.code for member in self._members]
        if EXIT_FAULTED in codes:
            return EXIT_FAULTED
        return 0 if not any(codes) else 1

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signals += 1

    def _send(self, number: int) -> None:
        for member in self._members:
            member.send(number)
