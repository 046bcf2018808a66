"""`holdfast run`: the command, and the life of one worker process."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from contextlib import ExitStack, suppress
from types import FrameType
from typing import NoReturn

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.options import Seconds
from holdfast.cli.output import plural
from holdfast.cli.run.processes import EXIT_FAULTED, ProcessGroup, own_share
from holdfast.errors import StoreUnavailable
from holdfast.runtime.run.supervisor import Supervisor

LOOPBACK = "127.0.0.1"

CHECK_INTERVAL_SECONDS = 0.1
"""Interval at which the main thread checks for a signal, a fault or the end."""

ABANDON_TIMEOUT_SECONDS = 1.0
"""Timeout of the last steps of a process whose handlers hang."""


def _address(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """HOST:PORT, or only a port, which is served on the loopback interface."""
    if value is None:
        return None
    found = re.fullmatch(r"(?:(\[[0-9A-Fa-f:.]+\]|[\w.-]*):)?([0-9]{1,5})", value, re.ASCII)
    if found is None or int(found[2]) > 65_535:
        raise click.BadParameter(
            f"{value!r} is not an address; give HOST:PORT, as in 0.0.0.0:9100, or only a port"
        )
    return (found[1] or LOOPBACK).strip("[]"), int(found[2])


@click.command()
@takes_app(log_level=logging.INFO)
@click.option("--exit-on-fault", is_flag=True, help="End as soon as a projection faults.")
@click.option(
    "--stop-seconds",
    type=Seconds(min=0, min_open=True),
    default=20.0,
    metavar="SECONDS",
    help="Timeout of a stop, which waits for handlers to return.",
)
@click.option(
    "--http",
    "address",
    callback=_address,
    metavar="[HOST:]PORT",
    help="Serve /metrics, /livez and /readyz there; without a host, on 127.0.0.1.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of worker processes that share the projections.",
)
def run(
    app: App,
    exit_on_fault: bool,
    stop_seconds: float,
    address: tuple[str, int] | None,
    processes: int,
) -> None:
    """Run the projections of an app until SIGTERM or SIGINT.

    On either signal, every projection commits what it has begun and releases its lease. A second
    signal ends the process at once. A projection that faults stops alone, until an operator lets
    it go on (holdfast retry) or the worker is started again. Where another worker runs a
    projection, this one stands by.

    With --processes, each of N worker processes runs a part of the projections. Projections that
    processes can share, such as those on Kafka or an outbox, run in all of them. A process that
    dies is started again. With --http, each process serves on its own port, counted up from the
    given one.

    Exit code 3: a projection had faulted at the end. When all have faulted, the process ends by
    itself.
    """
    share = own_share()
    if share is None and processes > 1:
        count = min(processes, app.most_processes())
        app.close()
        if count < processes:
            _say(f"starts {count} of {processes} processes: there is no work for more")
        group = ProcessGroup(count, stop_seconds=stop_seconds, say=_say)
        sys.exit(group.run(exit_on_fault=exit_on_fault))
    signals = _StopSignals()
    supervisor = app.supervise(part=(share.number, share.of) if share else None)
    signals.supervisor = supervisor
    names = ", ".join(runner.definition.name for runner in supervisor.workers)
    if address is not None and address[1] and share is not None:
        address = address[0], address[1] + share.number
    with ExitStack() as stack:
        if address is not None:
            from holdfast.cli.run.http import serving

            url = stack.enter_context(serving(app, supervisor, address))
            _say(f"serving /metrics, /livez and /readyz on {url}")
        _say(f"running {plural(len(supervisor.workers), 'projection')} on {app.url}: {names}")
        if not signals.stop_requested:
            supervisor.start()
        while not supervisor.join(CHECK_INTERVAL_SECONDS):
            is_orphaned = share is not None and share.is_orphaned
            is_over = (exit_on_fault and supervisor.faulted) or (
                supervisor.is_stuck and (share is None or _is_all_faulted(app))
            )
            if signals.stop_requested or is_orphaned or is_over:
                _stop(supervisor, stop_seconds, exit_on_fault=exit_on_fault)
                break
    _end(supervisor)


def _is_all_faulted(app: App) -> bool:
    """Whether the projections of all processes have faulted, or the database can't be asked."""
    try:
        return all(s.is_faulted for s in app.status() if s.projection in app.projections)
    except StoreUnavailable:
        return True


class _StopSignals:
    """Remembers the first signal to stop; the second one ends the process."""

    def __init__(self) -> None:
        self.supervisor: Supervisor | None = None
        self.stop_requested = self._is_ending = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.stop_requested:
            if self.supervisor is not None and not self._is_ending:
                self._is_ending = True
                self.supervisor.abandon(ABANDON_TIMEOUT_SECONDS)
            os._exit(128 + number)
        self.stop_requested = True


def _stop(supervisor: Supervisor, stop_seconds: float, *, exit_on_fault: bool) -> None:
    faulted = supervisor.is_stuck or (exit_on_fault and supervisor.faulted)
    _say("stopping, because a projection faulted" if faulted else "stopping")
    supervisor.stop()
    until = time.monotonic() + stop_seconds
    # In short steps: a signal may reach another thread, and this one must wake up to see it.
    while not supervisor.join(min(CHECK_INTERVAL_SECONDS, max(0.0, until - time.monotonic()))):
        if time.monotonic() < until:
            continue
        hung = ", ".join(runner.definition.name for runner in supervisor.running)
        _say(f"did not stop in {stop_seconds:g} s: {hung}; what they had begun is undone")
        supervisor.abandon(ABANDON_TIMEOUT_SECONDS)
        _exit_at_once(EXIT_FAULTED if supervisor.faulted else 1)


def _end(supervisor: Supervisor) -> None:
    faulted = [runner.definition.name for runner in supervisor.faulted]
    if faulted:
        _say(f"ended; faulted: {', '.join(faulted)}. the log and holdfast status say why")
    else:
        _say("stopped")
    code = EXIT_FAULTED if faulted else 0
    if supervisor.has_left_threads:
        _exit_at_once(code)
    sys.exit(code)


def _say(text: str) -> None:
    logging.getLogger("holdfast").info(text)


def _exit_at_once(code: int) -> NoReturn:
    """Ends the process without waiting for threads that still run and may hold locks."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)
