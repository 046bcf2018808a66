"""On PostgreSQL rows and checkpoint go in one statement, which is a transaction by itself."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Trace

from holdfast import App, Event, Park, Policy, Projection, StoreUnavailable, TableProjection, Tx, on
from holdfast.errors import Fenced, Revised
from holdfast.model.rows.row_type import table_of
from holdfast.runtime.signals import Committed, Signal
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.transaction import RowChanges
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import WAIT_SECONDS, Counted, Sum, Sums, fetch, table_definition
from tests.support.postgres import wait_until

LIVE_EVENTS = 20
PREPARED_AFTER = 10
"""By then psycopg has prepared what it sends again and again, and rows are loaded."""

BLOCKED = """
SELECT pid FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
    AND query LIKE 'WITH holdfast_moved%'
"""


TABLE = table_of(Sum, name="sums")
ROWS = RowChanges([["a", "b"], [1, 2]], [7, 7])
TO = Advance(
    position=7,
    events=2,
    last_event_id=None,
    last_event_type=None,
    at=datetime(2026, 1, 2, tzinfo=UTC),
    events_per_second=1.0,
)


@pytest.fixture
def url(emptied_postgres_url: str) -> str:
    return emptied_postgres_url


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with App(url) as opened:
        yield opened


@pytest.fixture
def other(app: App, url: str) -> Iterator[psycopg.Connection]:
    """Somebody else."""
    app.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def session(app: App) -> Iterator[SqlSession]:
    app.migrate()
    with closing(SqlSession(app._database)) as opened:
        yield opened


@pytest.fixture
def leading(session: SqlSession) -> Checkpoint:
    checkpoint = session.take_over(session.open_checkpoint("sums", "journal"))
    session.prepare(table_definition(Sum, name="sums"))
    return checkpoint


def rows(app: App) -> list[tuple[str, int]]:
    return fetch(app, "SELECT stream, total FROM sums ORDER BY stream")


def position(app: App) -> int:
    ((found,),) = fetch(app, "SELECT position FROM holdfast_checkpoint")
    return int(found)


@contextmanager
def advancing(
    app: App, session: SqlSession, leading: Checkpoint
) -> Iterator[tuple[Future[Checkpoint], int]]:
    """The statement on its way, waiting for somebody's lock, and its backend's pid."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(session.advance, leading, TO, (TABLE, ROWS))
        wait_until(lambda: bool(fetch(app, BLOCKED)) or future.done(), WAIT_SECONDS, "it to wait")
        ((pid,),) = fetch(app, BLOCKED)
        yield future, pid


def test_who_is_taken_over_while_it_waits_writes_nothing(
    app: App, session: SqlSession, leading: Checkpoint, other: psycopg.Connection
) -> None:
    with ExitStack() as stack:
        with other.transaction():
            other.execute("UPDATE holdfast_checkpoint SET epoch = epoch + 1")
            advance, _ = stack.enter_context(advancing(app, session, leading))
        with pytest.raises(Fenced, match="sums"):
            advance.result(WAIT_SECONDS)
    assert (rows(app), position(app)) == ([], 0)


def test_who_is_changed_by_a_person_while_it_waits_writes_nothing(
    app: App, session: SqlSession, leading: Checkpoint, other: psycopg.Connection
) -> None:
    with ExitStack() as stack:
        with other.transaction():
            other.execute("UPDATE holdfast_checkpoint SET revision = revision + 1")
            advance, _ = stack.enter_context(advancing(app, session, leading))
        with pytest.raises(Revised, match="sums"):
            advance.result(WAIT_SECONDS)
    assert (rows(app), position(app)) == ([], 0)


def test_a_row_that_somebody_writes_meanwhile_undoes_all(
    app: App, session: SqlSession, leading: Checkpoint, other: psycopg.Connection
) -> None:
    with ExitStack() as stack:
        with other.transaction():
            other.execute("INSERT INTO sums (stream, total, _position) VALUES ('b', 9, 8)")
            advance, _ = stack.enter_context(advancing(app, session, leading))
        with pytest.raises(Fenced, match="1 rows of table 'sums'"):
            advance.result(WAIT_SECONDS)
    assert (rows(app), position(app)) == ([("b", 9)], 0)


def test_a_connection_that_is_cut_meanwhile_leaves_nothing(
    app: App, session: SqlSession, leading: Checkpoint, other: psycopg.Connection
) -> None:
    with ExitStack() as stack, other.transaction():
        other.execute("INSERT INTO sums (stream, total, _position) VALUES ('b', 9, 1)")
        advance, pid = stack.enter_context(advancing(app, session, leading))
        other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(StoreUnavailable) as caught:
            advance.result(WAIT_SECONDS)
    assert caught.value.connection_lost
    assert (rows(app), position(app)) == ([("b", 9)], 0)


def test_who_waits_for_a_row_that_stays_older_writes_all(
    app: App, session: SqlSession, leading: Checkpoint, other: psycopg.Connection
) -> None:
    with ExitStack() as stack:
        with other.transaction():
            other.execute("INSERT INTO sums (stream, total, _position) VALUES ('b', 9, 1)")
            advance, _ = stack.enter_context(advancing(app, session, leading))
        assert advance.result(WAIT_SECONDS).position == 7
    assert (rows(app), position(app)) == ([("a", 1), ("b", 2)], 7)


@pytest.mark.parametrize(
    ("constraint", "error"),
    [("CHECK (1 / (total - 3) < 9)", "DivisionByZero"), ("CHECK (total <> 3)", "CheckViolation")],
)
def test_what_the_table_refuses_is_its_event_s(
    app: App, other: psycopg.Connection, constraint: str, error: str
) -> None:
    """Also where it is refused with the error that we make ourselves."""
    app.projection(policy=Policy(on_error=Park()))(Sums)
    app.catch_up()
    other.execute(f"ALTER TABLE sums ADD {constraint}")
    for n in range(6):
        app.journal.append(f"s{n}", [Counted(n)])
    app.catch_up()
    assert rows(app) == [(f"s{n}", n) for n in range(6) if n != 3]
    assert [(item.stream, item.error_type) for item in app.queue.list()] == [("s3", error)]
    assert position(app) == 6


class Handled(Projection):
    """Writes a row an event."""

    tables = {"handled": "CREATE TABLE handled (n bigint)"}  # noqa: RUF012

    @on(Counted)
    def counted(self, event: Event[Counted], tx: Tx) -> None:
        tx.execute("INSERT INTO handled VALUES (%s)", (event.data.n,))


class Elsewhere(Projection):
    """Handles nothing that comes."""

    @on("Other")
    def other(self, event: Event[object], tx: Tx) -> None:
        raise NotImplementedError


class Unmoved(TableProjection[Sum]):
    """The same, with a table."""

    @on("Other")
    def other(self, row: Sum, event: Event[object]) -> None:
        raise NotImplementedError


class Committing:
    """How far the runner has come."""

    def __init__(self) -> None:
        self._position, self._changed = 0, threading.Condition()

    def __call__(self, signal: Signal) -> None:
        if isinstance(signal, Committed):
            with self._changed:
                self._position = signal.position
                self._changed.notify_all()

    def wait_for(self, position: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._position >= position, WAIT_SECONDS)


@pytest.mark.parametrize(
    ("projection", "trips"),
    [
        pytest.param(Sums, 1, id="rows and checkpoint at once"),
        pytest.param(Unmoved, 1, id="the checkpoint alone"),
        pytest.param(Elsewhere, 1, id="no handler"),
        pytest.param(Handled, 7, id="begin, epoch, savepoint, row, mark, checkpoint, commit"),
    ],
)
def test_how_often_a_live_event_is_waited_for(
    app: App,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    projection: type[Projection],
    trips: int,
) -> None:
    """Once to read it; and then as few times as it takes, by what libpq says of its messages."""
    traced: list[Path] = []
    connect = PostgresDatabase.connect

    def connect_traced(database: PostgresDatabase) -> PostgresConnection:
        connection = connect(database)
        traced.append(tmp_path / str(len(traced)))
        file = stack.enter_context(traced[-1].open("w"))
        connection.raw.pgconn.trace(file.fileno())
        connection.raw.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
        return connection

    monkeypatch.setattr(PostgresDatabase, "connect", connect_traced)
    app.projection()(projection)
    committed = Committing()
    app.listen(committed)
    seen = []
    with ExitStack() as stack, app.running():
        for n in range(LIVE_EVENTS):
            app.journal.append("a", [Counted(n)])
            committed.wait_for(n + 1)
            seen.append(sum(path.read_text().count("ReadyForQuery") for path in traced))
    steps = [after - before for before, after in itertools.pairwise(seen)]
    # A poll that comes between asks for the epoch, so some have more.
    assert min(steps[PREPARED_AFTER:]) == 1 + trips
