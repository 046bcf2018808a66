"""Wherever a batch begins and ends, the rows are the same."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

import pytest

from holdfast import (
    DELETE,
    App,
    Event,
    Park,
    Policy,
    Poll,
    Projection,
    ProjectionFaulted,
    QueueSelection,
    TableProjection,
    Tx,
    on,
)
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.failure.recovery import Recovery
from holdfast.runtime.failure.suspects import Suspects
from holdfast.runtime.limits import LIMITS as RUNTIME
from holdfast.runtime.run.batch_reader import BatchReader
from holdfast.runtime.signals import Committed, Refused, Signal
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.source import Chunk, Source
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.sqlite.connection import SqliteConnection
from tests.contracts.samples import execute, fetch
from tests.support.limits import set_limits

STREAMS = 7
EVENTS = 60


@dataclass
class Counted:
    n: int


@dataclass
class Sum:
    name: str
    amount: int = 0


class Sums(TableProjection[Sum]):
    """The sum of each stream; every 17th number deletes the row."""

    @on(Counted)
    def counted(self, row: Sum, event: Event[Counted]) -> object:
        row.amount += event.data.n
        return DELETE if event.data.n % 17 == 0 else None


class Log(Projection):
    tables: ClassVar = {"log": "CREATE TABLE log (n INTEGER)"}

    @on(Counted)
    def counted(self, event: Event[Counted], tx: Tx) -> None:
        if event.data.n == EVENTS:
            raise ValueError("one too many")
        tx.execute("INSERT INTO log VALUES (?)", (event.data.n,))


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        app.projection(Sums)
        app.projection(Log)
        yield app


FIVES = {"chunk_events": 5, "batch_events": 5, "fold_events": 5}
LIMITS: dict[str, dict[str, float]] = {
    "as they are": {},
    "chunks of one event": {"chunk_events": 1},
    "chunks of three events": {"chunk_events": 3},
    "batches of one event": {"chunk_events": 1, "batch_events": 1, "fold_events": 1},
    "batches of seven events": {"chunk_events": 3, "batch_events": 7, "fold_events": 7},
    "batches of few bytes": {"batch_bytes": 40, "fold_bytes": 40},
    "a transaction for each event": {"batch_seconds": 0.0, "fold_seconds": 0.0},
    "room for two rows": {**FIVES, "cached_rows": 2},
    "two changed rows": {"chunk_events": 3, "changed_rows": 2},
    "room for no row": {**FIVES, "cached_rows": 0},
}
COMMITS = {
    "batches of one event": EVENTS,
    "batches of seven events": EVENTS // 7,
    "batches of few bytes": EVENTS // 4,
    "a transaction for each event": EVENTS,
    "room for no row": EVENTS // 5,
    "two changed rows": EVENTS // 9,
}
"""How often the sums are committed, at least."""


@pytest.mark.parametrize("limits", LIMITS)
def test_the_rows_are_the_same_whatever_the_limits(app: App, limits: str) -> None:
    set_limits(app, **LIMITS[limits])
    committed: Counter[str] = Counter()
    app.listen(lambda s: committed.update([s.projection] if isinstance(s, Committed) else []))
    for n in range(EVENTS):
        app.journal.append(f"s{n % STREAMS}", [Counted(n)])
    app.catch_up()
    assert committed["sums"] >= COMMITS.get(limits, 1)
    assert dict(fetch(app, "SELECT name, amount FROM sums")) == _expected_sums(EVENTS)
    assert fetch(app, "SELECT n FROM log") == [(n,) for n in range(EVENTS)]

    app.journal.append("s0", [Counted(n) for n in range(EVENTS + 5)])
    with pytest.raises(ProjectionFaulted, match="one too many"):
        app.catch_up()
    assert fetch(app, "SELECT n FROM log") == [(n,) for n in (*range(EVENTS), *range(EVENTS))]
    by_name = {status.projection: status for status in app.status()}
    assert by_name["log"].events_processed == 2 * EVENTS
    assert by_name["sums"].events_processed == 2 * EVENTS + 5


@pytest.mark.parametrize("chunk_events", [1, 4, 1_000])
def test_what_the_database_refuses_is_found_in_any_chunk(app: App, chunk_events: int) -> None:
    """Events that are folded while they are read are read again, and the one to blame is parked."""
    set_limits(app, chunk_events=chunk_events)

    @dataclass
    class Owner:
        stream: str
        number: int = 0

    @app.projection(name="owners", policy=Policy(on_error=Park()))
    class Owners(TableProjection[Owner]):
        @on(Counted)
        def counted(self, row: Owner, event: Event[Counted]) -> None:
            row.number = event.data.n

    app.catch_up()
    told: list[Signal] = []
    app.listen(told.append)
    execute(app, "CREATE UNIQUE INDEX one_owner ON owners (number)")
    for n in range(40):
        app.journal.append(f"s{n}", [Counted(n if n % 15 else 0)])  # s15 and s30 have 0's number.
    app.catch_up()
    for n in range(40):
        app.journal.append(f"s{n}", [Counted(100 + n)])
    app.catch_up()
    assert any(isinstance(signal, Refused) and "UNIQUE" in signal.error for signal in told)
    rows = dict(fetch(app, "SELECT stream, number FROM owners"))
    assert rows == {f"s{n}": 100 + n for n in range(40) if n not in (15, 30)}
    assert sorted((i.lane, i.status) for i in app.queue.list()) == [
        ("s15", "dead"),
        ("s15", "pending"),
        ("s30", "dead"),
        ("s30", "pending"),
    ]


@pytest.mark.parametrize("free_events", [1, 2, 5, 128])
@pytest.mark.parametrize("sick", [{0}, {3, 4}, {8, 22}, {59}, {1, 15, 30, 31}])
def test_events_of_closed_lanes_wait_wherever_they_are_looked_up(
    free_events: int, sick: set[int]
) -> None:
    """Of each stream, what comes before the first that fails is applied, and nothing else."""

    def check(n: int) -> None:
        if n in sick:
            raise ValueError("sick")

    with App("sqlite:///:memory:") as app:
        set_limits(app, lookup_events=free_events)

        @app.projection(name="sums", policy=Policy(on_error=Park()))
        class ParkedSums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.amount += event.data.n
                check(event.data.n)

        @app.projection(name="log", policy=Policy(on_error=Park()))
        class ParkedLog(Projection):
            tables: ClassVar = {"log": "CREATE TABLE log (n INTEGER)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute("INSERT INTO log VALUES (?)", (event.data.n,))
                check(event.data.n)

        for n in range(EVENTS // 2):
            app.journal.append(f"s{n % STREAMS}", [Counted(n)])
        app.catch_up()
        for n in range(EVENTS // 2, EVENTS):  # Lanes are closed by what was committed before.
            app.journal.append(f"s{n % STREAMS}", [Counted(n)])
        app.catch_up()
        applied = [n for n in range(EVENTS) if not sick & set(range(n % STREAMS, n + 1, STREAMS))]
        sums = {f"s{k}": sum(n for n in applied if n % STREAMS == k) for k in range(STREAMS)}
        waiting = sorted(set(range(EVENTS)) - set(applied))
        assert fetch(app, "SELECT n FROM log") == [(n,) for n in applied]
        assert dict(fetch(app, "SELECT name, amount FROM sums")) == {
            name: amount for name, amount in sums.items() if int(name[1:]) in applied
        }
        for name in ("sums", "log"):
            items = app.queue.list(QueueSelection(projection=name))
            assert sorted(item.position - 1 for item in items) == waiting


@pytest.mark.parametrize("projection", [Sums, Log])
def test_what_a_batch_leaves_comes_at_once(projection: type[Sums] | type[Log]) -> None:
    """A pause is for the head of the feed, and not for events that there was no time for."""
    with App("sqlite:///:memory:") as app:
        set_limits(app, batch_seconds=0.0, fold_seconds=0.0)
        app.projection(poll=Poll(interval_seconds=3_600, wake=False))(projection)
        for n in range(5):
            app.journal.append("s0", [Counted(n)])
        app.catch_up(timeout_seconds=30)


def test_a_slow_read_is_no_reason_to_apply_less(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each event would be read again for the sake of the one before."""
    set_limits(app, chunk_events=20, batch_seconds=0.05, fold_seconds=0.05)
    reads, read = 0, JournalSource.read

    def read_slowly(self: JournalSource, after: int, limit: int) -> Chunk:
        nonlocal reads
        reads += 1
        time.sleep(0.06)
        return read(self, after, limit)

    monkeypatch.setattr(JournalSource, "read", read_slowly)
    app.journal.append("s0", [Counted(n) for n in range(EVENTS)])
    with suppress(ProjectionFaulted):
        app.catch_up()
    assert {s.projection: s.position for s in app.status()}["sums"] == EVENTS
    assert (
        reads <= 4 * EVENTS // 20
    )  # Of two projections, one of which reads all before it applies.


def test_nothing_is_read_while_a_transaction_holds_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others wait for that transaction, perhaps those who are about to read for all."""
    monkeypatch.setattr(Leadership, "locks_first", True)
    read = JournalSource.read

    def read_freely(self: JournalSource, after: int, limit: int) -> Chunk:
        connection = self._session.connection
        assert isinstance(connection, SqliteConnection)
        assert not connection.raw.in_transaction
        return read(self, after, limit)

    monkeypatch.setattr(JournalSource, "read", read_freely)
    with App(f"sqlite:///{tmp_path}/journal.db") as app:
        app.projection(Sums)
        for n in range(EVENTS):
            app.journal.append(f"s{n % STREAMS}", [Counted(n)])
        app.catch_up()
        assert dict(fetch(app, "SELECT name, amount FROM sums")) == _expected_sums(EVENTS)


def test_a_batch_has_fewer_events_where_a_process_has_died(app: App) -> None:
    """If it dies again, fewer can be to blame. What is passed, or the head, ends that."""
    ends: Callable[[Suspects], None]
    kind = app._catalog.find(Sums).kind
    most, careful = RUNTIME.fold_events, RUNTIME.careful_events
    checkpoint = Checkpoint(1, "sums", "journal", 0, 1, "running", 0, 0, unclean_ends=1)
    recovery = cast(Recovery, None)
    for ends in (lambda s: s.passed(most, most), lambda s: s.at_head()):
        suspects = Suspects(RUNTIME)
        reader = BatchReader(
            cast(Source, None), kind, limits=RUNTIME, suspects=suspects, stopping=lambda: False
        )
        assert reader.limit == most
        suspects.begin(checkpoint, recovery, most_events=most)
        assert reader.limit == careful
        suspects.passed(most - 1, most)
        assert reader.limit == careful
        ends(suspects)
        assert reader.limit == most
    suspects = Suspects(RUNTIME)
    suspects.begin(replace(checkpoint, unclean_ends=2), recovery, most_events=most)
    assert suspects.alone_events == careful


def _expected_sums(events: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for n in range(events):
        name = f"s{n % STREAMS}"
        sums[name] = sums.get(name, 0) + n
        if n % 17 == 0:
            del sums[name]
    return sums
