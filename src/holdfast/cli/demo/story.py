"""The demo's story: work, a kill -9, the recovery, and the reckoning."""

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
from holdfast.cli.output import add_row, new_table
from holdfast.errors import HoldfastError

KILL_AT = 0.4
RESTART_AT = 0.65
"""Which part of the events is appended when the worker is killed, and when the next one starts."""

LOOK_SECONDS = 0.1
WAIT_SECONDS = 120.0


def tell(screen: Screen, writers: Writers, folder: Path) -> None:
    """Plays it through; raises if it doesn't go as it should."""
    stage = _Stage(screen, writers)
    with ExitStack() as workers:
        screen.chapter("1. A worker keeps three read models while events come in")
        screen.say(f"A bank on {bank.app.url}: {ACCOUNTS} accounts, {THREADS} writers, and")
        writers.open_accounts()
        first = Worker(folder)
        workers.callback(first.end)
        screen.say(f"one worker process, pid {first.pid}, started as: holdfast run bank:app")
        stage.wait(stage.is_running, "the worker to start", worker=first)
        writers.start()
        stage.wait(lambda: stage.share >= KILL_AT, "the writers", worker=first)

        screen.chapter(f"2. kill -9 {first.pid}, in the middle of its work")
        first.kill()
        before = writers.appended
        screen.say("Nobody could tidy up. Appends don't need the worker; they go on:")
        stage.wait(lambda: stage.share >= RESTART_AT, "the writers")
        screen.say(f"{writers.appended - before:,} events have come in since.")

        screen.chapter("3. A new worker goes on from exactly what is committed")
        second = Worker(folder)
        workers.callback(second.end)
        screen.say(f"pid {second.pid}; what is behind is caught up while more comes in:")
        stage.wait(stage.is_finished, "the worker to catch up", worker=second)
        code = second.stop()
        if code != 0:
            screen.say(second.log())
            raise HoldfastError(f"the worker ended with exit code {code}, not 0")
        screen.say("All is applied. The worker was asked to stop (SIGTERM), and ended with code 0.")


def report(screen: Screen, checks: Sequence[Check]) -> None:
    """Shows what was compared, and the verdict."""
    screen.chapter("4. Every row against the journal, folded again by other code")
    table = new_table("", "expected", "found", "", right=("expected", "found"))
    for check in checks:
        verdict = ("right", "green") if check.is_right else ("WRONG", "bold red")
        add_row(table, check.what, f"{check.expected:,}", f"{check.found:,}", verdict)
    screen.console.print(table)
    if all(check.is_right for check in checks):
        screen.say("Nothing lost, nothing applied twice.", "bold green")
    else:
        screen.say("Something is wrong. That is a bug in holdfast; please report it.", "bold red")


class _Stage:
    """Watches projections and writers, and shows them, until something has come true."""

    def __init__(self, screen: Screen, writers: Writers) -> None:
        self._screen, self._writers = screen, writers
        self._statuses = read_statuses(bank.app)

    @property
    def share(self) -> float:
        """Which part of the events is appended."""
        return self._writers.appended / self._writers.wanted

    def is_running(self) -> bool:
        return all(status.state == "running" for status in self._statuses)

    def is_finished(self) -> bool:
        return self._writers.is_done and not any(s.lag_events for s in self._statuses)

    def wait(
        self, condition: Callable[[], bool], what: str, *, worker: Worker | None = None
    ) -> None:
        """Returns when the condition holds, as of a look that was taken before it is asked."""
        until = time.monotonic() + WAIT_SECONDS
        while not condition():
            if self._writers.error is not None:
                raise HoldfastError(f"a writer failed: {self._writers.error}")
            if worker is not None and worker.exit_code is not None:
                self._screen.say(worker.log())
                raise HoldfastError(f"the worker ended by itself, with code {worker.exit_code}")
            if time.monotonic() > until:
                raise HoldfastError(f"waited {WAIT_SECONDS:.0f} s for {what}")
            time.sleep(LOOK_SECONDS)
            self._statuses = read_statuses(bank.app)
            self._screen.show(self._statuses, f"{self._writers.appended:,} events appended")
