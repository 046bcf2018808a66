"""Events that fail: what one poisoned lane, or every tenth event, costs the rest."""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import Any, ClassVar, Literal

from bench import journal
from bench.case import Case, Database, Sample, Scale, Stopwatch, WrongResult
from bench.cases.holdfast import (
    INSERT,
    UPDATE,
    AccountOpened,
    Balance,
    FundsCredited,
    FundsDebited,
)
from bench.catch_up import table
from bench.connection import connect, native
from holdfast import App, Event, Limits, Park, Policy, Projection, Skip, TableProjection, Tx, on

Kind = Literal["clean", "one-lane", "tenth-skipped", "tenth-parked"]
KINDS: tuple[Kind, ...] = ("clean", "one-lane", "tenth-skipped", "tenth-parked")
LANES_PER_POISON = 1_000
EVENTS_PER_POISON = 10


def cases(scale: Scale) -> list[Case]:
    return [
        Case(
            name=f"{group}/{database}/{kind}",
            database=database,
            loaded_events=events,
            load=journal.load,
            run=partial(run, kind=kind, events=events),
            check=check,
        )
        for group, database, events, run in (
            ("poison-table", Database.POSTGRES, scale.events // 2, run_table),
            ("poison-table", Database.SQLITE, scale.events // 2, run_table),
            ("poison-handlers", Database.POSTGRES, scale.statement_events // 2, run_handlers),
            ("poison-handlers", Database.SQLITE, scale.events // 2, run_handlers),
        )
        for kind in KINDS
    ]


def run_table(url: str, *, kind: Kind, events: int) -> Sample:
    app = App(url)

    @app.projection(policy=_policy(kind))
    class AccountBalance(TableProjection[Balance]):
        @on(AccountOpened, FundsCredited, FundsDebited)
        def moved(self, row: Balance, event: Event[Any]) -> None:
            row.balance += _amount(event)
            row.version = event.version
            row.updated_at = event.recorded_at
            _fail(kind, event)

    return _catch_up(app, events)


def run_handlers(url: str, *, kind: Kind, events: int) -> Sample:
    app = App(url)
    insert, update = native(INSERT, url), native(UPDATE, url)

    @app.projection(policy=_policy(kind))
    class AccountBalance(Projection):
        tables: ClassVar = {"account_balance": table(url)}

        @on(AccountOpened, FundsCredited, FundsDebited)
        def moved(self, event: Event[Any], tx: Tx) -> None:
            statement = insert if isinstance(event.data, AccountOpened) else update
            at = event.recorded_at.isoformat()
            tx.execute(statement, (_amount(event), event.version, at, event.stream))
            _fail(kind, event)

    return _catch_up(app, events)


def check(url: str, sample: Sample) -> None:
    """Every event is either applied or in the queue."""
    with closing(connect(url)) as connection:
        (applied,) = connection.execute(
            "SELECT events_processed FROM holdfast_checkpoint"
        ).fetchone() or (0,)
        (queued,) = connection.execute("SELECT count(*) FROM holdfast_queue").fetchone() or (0,)
    if applied + queued != sample.events:
        raise WrongResult(f"{applied} events applied and {queued} queued, of {sample.events}")


def _policy(kind: Kind) -> Policy:
    decision = Skip() if kind == "tenth-skipped" else Park()
    return Policy(on_error=decision, limits=Limits(lanes=1_000_000))


def _fail(kind: Kind, event: Event[Any]) -> None:
    match kind:
        case "clean":
            return
        case "one-lane":
            is_poison = event.version == 2 and int(event.stream[:8], 16) % LANES_PER_POISON == 0
        case _:
            is_poison = event.position % EVENTS_PER_POISON == 3
    if is_poison:
        raise ValueError(f"event {event.id} can't be applied")


def _amount(event: Event[Any]) -> int:
    match event.data:
        case AccountOpened(opening_balance=amount):
            return amount
        case FundsDebited(amount=amount):
            return -amount
        case _:
            return int(event.data.amount)


def _catch_up(app: App, events: int) -> Sample:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    with closing(app):
        watch = Stopwatch()
        app.catch_up()
        return watch.sample(events)
