"""The demo's story: work, a kill -9, the recovery, and the final check."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from holdfast.cli.demo import bank
from holdfast.cli.demo.audit import Check
from holdfast.cli.demo.screen import Screen
from holdfast.cli.demo.worker import Worker
from holdfast.cli.demo.writers import ACCOUNTS, THREADS, Writers
from holdfast.cli.operate.status import read_statuses
from holdfast.cli.output import Table
from holdfast.errors import HoldfastError

KILL_AT = 0.4
RESTART_AT = 0.65
"""Fractions of the events that are appended when the worker is killed, and when another starts."""

CHECK_INTERVAL_SECONDS = 0.1
"""Interval at which projections and writers are checked."""

WAIT_TIMEOUT_SECONDS = 120.0
"""Timeout of each wait."""


def tell(screen: Screen, writers: Writers, folder: Path) -> None:
    """Plays the story; raises if it does not go as it should."""
    stage = _Stage(screen, writers)
    with ExitStack() as workers:
        screen.chapter("1. A worker keeps three read models while events come in")
        screen.say(f"A bank on {bank.app.url}")
        writers.open_accounts()
        first = Worker(folder)
        workers.callback(first.end)
        screen.say(
            f"{ACCOUNTS} accounts, {THREADS} writers, and one worker process, pid {first.pid},"
        )
        screen.say("started as: holdfast run bank:app")
        stage.wait(stage.is_running, "the worker to start", worker=first)
        writers.start()
        stage.wait(lambda: stage.fraction >= KILL_AT, "the writers", worker=first)

        screen.chapter(f"2. kill -9 {first.pid}, in the middle of its work")
        first.kill()
        before = writers.appended
        screen.say("It could not clean up. Appends don't need a worker, so they go on:")
        stage.wait(lambda: stage.fraction >= RESTART_AT, "the writers")
        screen.say(f"{writers.appended - before:,} events have come in since.")

        screen.chapter("3. A new worker goes on from exactly what is committed")
        second = Worker(folder)
        workers.callback(second.end)
        screen.say(f"pid {second.pid}; it catches up while more events come in:")
        stage.wait(stage.is_finished, "the worker to catch up", worker=second)
        code = second.stop()
        if code != 0:
            screen.say(second.log())
            raise HoldfastError(f"the worker ended with exit code {code}, not 0")
        screen.say("All events are applied. The worker was stopped by SIGTERM, with exit code 0.")


def report(screen: Screen, checks: Sequence[Check]) -> None:
    """Shows the checks and their result."""
    screen.chapter("4. Every row against the journal, folded again by other code")
    rows = (
        (
            check.what,
            f"{check.expected:,}",
            f"{check.found:,}",
            ("right", "green") if check.is_right else ("WRONG", "bold red"),
        )
        for check in checks
    )
    columns = ("check", "expected", "found", "result")
    screen.console.print(Table(columns, rows, right=columns[1:3]))
    if all(check.is_right for check in checks):
        screen.say("Nothing lost, nothing applied twice.", "bold green")
    else:
        screen.say("Something is wrong. That is a bug in holdfast; please report it.", "bold red")


class _Stage:
    """Projections and writers, shown on the screen while the story waits for them."""

    def __init__(self, screen: Screen, writers: Writers) -> None:
        self._screen, self._writers = screen, writers
        self._statuses = read_statuses(bank.app)

    @property
    def fraction(self) -> float:
        """The fraction of the events that is appended."""
        return self._writers.appended / self._writers.wanted

    def is_running(self) -> bool:
        return all(status.state == "running" for status in self._statuses)

    def is_finished(self) -> bool:
        return self._writers.is_done and not any(s.lag_events for s in self._statuses)

    def wait(
        self, condition: Callable[[], bool], what: str, *, worker: Worker | None = None
    ) -> None:
        """Returns when the condition holds for the statuses that were read last."""
        until = time.monotonic() + WAIT_TIMEOUT_SECONDS
        while not condition():
            if self._writers.error is not None:
                raise HoldfastError(f"a writer failed: {self._writers.error}")
            if worker is not None and worker.exit_code is not None:
                self._screen.say(worker.log())
                raise HoldfastError(f"the worker ended by itself, with code {worker.exit_code}")
            if time.monotonic() > until:
                raise HoldfastError(f"waited {WAIT_TIMEOUT_SECONDS:.0f} s for {what}")
            time.sleep(CHECK_INTERVAL_SECONDS)
            self._statuses = read_statuses(bank.app)
            self._screen.show(self._statuses, f"{self._writers.appended:,} events appended")
