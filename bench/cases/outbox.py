"""Outbox delivery: what it costs writers, and how fast one process empties the queue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from bench import append, catch_up, journal, pgbench
from bench.case import Case, Database, Sample, Scale, WrongResult
from bench.cases.appends import append_by_statement, append_to_journal
from bench.cases.holdfast import catch_up as drain
from bench.cases.holdfast import handlers_app, table_app
from bench.connection import connect
from holdfast import App
from holdfast.clock import SystemClock
from holdfast.sql.outbox.claims import SqlClaims

WAITING_SQL = (
    "SELECT (SELECT count(*) FROM holdfast_queue), (SELECT sum(events) FROM holdfast_lane)"
)


def cases(scale: Scale) -> list[Case]:
    return [*_append_cases(scale), *_drain_cases(scale)]


def _append_cases(scale: Scale) -> list[Case]:
    run = partial(append_by_statement, program=pgbench.installed(), function="holdfast_append")
    runs: dict[str, append.Run] = {"outbox": run, "journal-outbox": append_to_journal}
    return [
        replace(case, check=partial(check_appended, check=case.check))
        for name, run in runs.items()
        for case in append.cases(name, scale, run=run, load=load_registered, table="holdfast_event")
    ]


def _drain_cases(scale: Scale) -> list[Case]:
    events = scale.statement_events // 2
    return [
        Case(
            name=f"drain/{database}/{name}",
            database=database,
            loaded_events=events,
            load=load_registered,
            run=partial(run, events=events),
            check=check_drained,
        )
        for database in Database
        for name, run in (("table", drain_table), ("handlers", drain_handlers))
    ]


def drain_table(url: str, *, events: int) -> Sample:
    return drain(table_app(url, delivery="outbox"), events)


def drain_handlers(url: str, *, events: int) -> Sample:
    return drain(handlers_app(url, delivery="outbox"), events)


def load_registered(url: str, count: int) -> None:
    """W1 in the journal, and by the backfill in the queue of a registered projection."""
    journal.load(url, count)
    with closing(handlers_app(url, delivery="outbox")) as app:
        queue_all(app)


def queue_all(app: App) -> None:
    """Registers an app's projection, and puts what the journal has into its queue."""
    app.migrate()
    (definition,) = app._catalog
    with closing(app._open_session()) as session:
        claims = SqlClaims(session, definition, clock=SystemClock())
        while claims.backfill():
            pass


def check_appended(url: str, sample: Sample, *, check: Callable[[str, Sample], None]) -> None:
    """Every event waits in the queue, and is counted in its lane."""
    check(url, sample)
    _check_waiting(url, sample.events)


def check_drained(url: str, sample: Sample) -> None:
    """The read model is right, and nothing waits."""
    catch_up.check(url, sample)
    _check_waiting(url, 0)


def _check_waiting(url: str, events: int) -> None:
    with closing(connect(url)) as connection:
        queued, counted = connection.execute(WAITING_SQL).fetchone() or (None, None)
    if (queued, counted or 0) != (events, events):
        raise WrongResult(f"{queued} events wait, {counted} by their lanes, and should {events:,}")
