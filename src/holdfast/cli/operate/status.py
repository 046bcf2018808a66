"""`holdfast status`: how far each projection is, and what is wrong with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.operate.status_view import view_of
from holdfast.cli.options import Seconds, json_option
from holdfast.cli.output import one_line, plural, print_result, print_rows, stdout_console
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.feed_names import JOURNAL, MESSAGES
from holdfast.runtime.status import ProjectionStatus

if TYPE_CHECKING:
    from rich.console import RenderableType


NO_TABLES = (
    "The database has no holdfast tables yet; workers, appends and holdfast migrate make them"
)


@click.command()
@takes_app(optional="PROJECTION")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    "interval_seconds",
    type=Seconds(min=0.1),
    default=1.0,
    metavar="SECONDS",
    help="Interval of --watch.",
)
@click.option(
    "--event-type",
    "event_types",
    multiple=True,
    metavar="NAME",
    help="Count what one projection has left of this event type. May be repeated.",
)
@json_option
def status(
    app: App,
    projection: str | None,
    *,
    watch: bool,
    interval_seconds: float,
    event_types: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the state, position and lag of projections.

    "behind" counts positions up to the journal's head. "lag" is the age of the oldest event that
    holdfast itself still has to apply. "queued" counts events that wait in closed lanes, "stuck"
    those of them that wait for an operator; the columns are there when any do. Below the table
    stand pauses, waits and errors.

    With a name, only that projection is shown, with the traceback of its last error.

    With --watch, a terminal shows one table that changes. A pipe gets a table, or with --json a
    line, each time.
    """
    if event_types:
        if projection is None or watch:
            raise click.UsageError("--event-type needs a PROJECTION, and no --watch")
        _print_lag(app, projection, event_types, as_json)
        return
    if not watch:
        _print(app, projection, as_json)
        return
    with suppress(KeyboardInterrupt):
        if as_json or not sys.stdout.isatty():
            _repeat(app, projection, interval_seconds, as_json)
        else:
            _live(app, projection, interval_seconds)


def read_statuses(app: App, projection: str | None = None) -> list[ProjectionStatus]:
    """What has run on the database, and what is registered and has never run (at epoch 0)."""
    found = _read(app)
    if projection is None:
        return found
    own = [status for status in found if status.projection == projection]
    if not own:
        raise ConfigError(
            f"there is no projection {projection!r} in the app, and none has run on its database; "
            f"there is {', '.join(sorted({s.projection for s in found})) or 'none at all'}"
        )
    return own


def _read(app: App) -> list[ProjectionStatus]:
    found = app.status()
    known = {status.projection for status in found}
    missing = [name for name in app.projections if name not in known]
    return sorted([*found, *_never_ran(app, missing)], key=lambda s: s.projection)


def _never_ran(app: App, names: Sequence[str]) -> list[ProjectionStatus]:
    if not names:
        return []
    head = app.journal.head()
    return [
        ProjectionStatus(
            projection=name,
            feed=(feed := app.feed_of(name)),
            state="stopped",
            position=0,
            head=head if feed == JOURNAL else 0,
            lag_events=head if feed == JOURNAL else 0,
            lag_seconds=app.lag(name).seconds if feed == JOURNAL else 0.0,
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


def _print(app: App, projection: str | None, as_json: bool) -> None:
    statuses, known = read_statuses(app, projection), app.projections
    fields = [{**asdict(status), "registered": status.projection in known} for status in statuses]
    empty = "the app has no projections, and none has run on its database"
    view = partial(view_of, registered=known, with_tracebacks=projection is not None)
    has_tables = app.has_tables()
    print_rows(statuses, view, empty, as_json, projections=fields, has_tables=has_tables)
    if not (has_tables or as_json):
        click.echo(NO_TABLES)


def _print_lag(app: App, projection: str, event_types: Sequence[str], as_json: bool) -> None:
    lag = app.lag(projection, event_types=event_types)
    text = f"{projection}: {plural(lag.events, 'event')} left, the oldest {lag.seconds:.1f} s old"
    if lag.stuck_events:
        text += f"; {lag.stuck_events:,} stuck, the oldest {lag.stuck_seconds:.1f} s old"
    print_result(text, as_json, projection=projection, event_types=event_types, **asdict(lag))


def _repeat(app: App, projection: str | None, interval_seconds: float, as_json: bool) -> None:
    while True:
        try:
            _print(app, projection, as_json)
        except StoreUnavailable as error:  # It may be back the next time.
            print_result(one_line(str(error)), as_json, error=str(error))
        sys.stdout.flush()
        time.sleep(interval_seconds)


def _live(app: App, projection: str | None, interval_seconds: float) -> None:
    from rich.live import Live

    with Live(console=stdout_console(), auto_refresh=False) as live:
        while True:
            live.update(_view(app, projection), refresh=True)
            time.sleep(interval_seconds)


def _view(app: App, projection: str | None) -> RenderableType:
    from rich.text import Text

    try:
        statuses = read_statuses(app, projection)
        return view_of(statuses, app.projections, with_tracebacks=projection is not None)
    except StoreUnavailable as error:
        return Text(one_line(str(error)), style="red")
