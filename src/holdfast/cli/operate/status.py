"""`holdfast status`: how far each projection is, and what is wrong with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.operate.status_view import view_of
from holdfast.cli.options import Seconds, json_option
from holdfast.cli.output import one_line, print_result, print_rows, stdout_console
from holdfast.errors import StoreUnavailable
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.runtime.status import ProjectionStatus

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command()
@takes_app()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    "interval_seconds",
    type=Seconds(min=0.1),
    default=1.0,
    metavar="SECONDS",
    help="Interval of --watch.",
)
@json_option
def status(app: App, watch: bool, interval_seconds: float, as_json: bool) -> None:
    """Show the state, position and lag of each projection.

    "behind" counts positions up to the journal's head. "lag" is the age of the oldest event that
    is not applied. "queued" counts events that wait in closed lanes; the column is there when any
    do. Below the table stand pauses, waits and errors.

    With --watch, a terminal shows one table that changes. A pipe gets a table, or with --json a
    line, each time.
    """
    if not watch:
        _print(app, as_json)
        return
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _repeat(app, interval_seconds, as_json)
        else:
            _live(app, interval_seconds)


def read_statuses(app: App) -> list[ProjectionStatus]:
    """What has run on the database, and what is registered and has never run (at epoch 0)."""
    found = app.status()
    known = {status.projection for status in found}
    missing = [name for name in app.projections if name not in known]
    return sorted([*found, *_never_ran(app, missing)], key=lambda s: s.projection)


def _never_ran(app: App, names: Sequence[str]) -> list[ProjectionStatus]:
    if not names:
        return []
    head = app.journal.head()
    first = next(app.journal.read_raw(limit=1), None)
    waiting = 0.0 if first is None else (datetime.now(UTC) - first.recorded_at).total_seconds()
    return [
        ProjectionStatus(
            projection=name,
            feed=(feed := app.feed_of(name)),
            state="stopped",
            position=0,
            head=head if feed == JOURNAL else 0,
            lag_events=head if feed == JOURNAL else 0,
            lag_seconds=max(0.0, waiting) if feed == JOURNAL else 0.0,
            events_processed=0,
            events_per_second=0.0,
            epoch=0,
            leader=None,
            last_event_id=None,
            last_event_type=None,
            last_processed_at=None,
            last_error=None,
            is_head_known=feed in (JOURNAL, MESSAGES),
        )
        for name in names
    ]


def _print(app: App, as_json: bool) -> None:
    statuses, known = read_statuses(app), app.projections
    fields = [{**asdict(status), "registered": status.projection in known} for status in statuses]
    empty = "the app has no projections, and none has run on its database"
    print_rows(statuses, partial(view_of, registered=known), empty, as_json, projections=fields)


def _repeat(app: App, interval_seconds: float, as_json: bool) -> None:
    while True:
        try:
            _print(app, as_json)
        except StoreUnavailable as error:  # It may be back the next time.
            print_result(one_line(str(error)), as_json, error=str(error))
        sys.stdout.flush()
        time.sleep(interval_seconds)


def _live(app: App, interval_seconds: float) -> None:
    from rich.live import Live

    with Live(console=stdout_console(), auto_refresh=False) as live:
        while True:
            live.update(_view(app), refresh=True)
            time.sleep(interval_seconds)


def _view(app: App) -> RenderableType:
    from rich.text import Text

    try:
        return view_of(read_statuses(app), app.projections)
    except StoreUnavailable as error:
        return Text(one_line(str(error)), style="red")
