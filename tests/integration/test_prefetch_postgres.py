"""PostgreSQL reads the next events while a runner applies those before."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast import App, Event, Journal, NewEvent, StoreUnavailable, TableProjection, on
from holdfast.runtime.store.source import Chunk, Source
from holdfast.sql.database import Database, Row
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.postgres.prefetch import Prefetch
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import WAIT_SECONDS, Counted, Sum, Sums, execute, fetch
from tests.integration.databases import OnPostgres
from tests.support.limits import set_limits
from tests.support.postgres import wait_until

ASKED = {"after": 3, "limit": 3}


class TestReadingAhead(OnPostgres):
    @pytest.fixture
    def session(self, database: Database) -> Iterator[SqlSession]:
        with closing(SqlSession(database)) as session:
            yield session

    @pytest.fixture
    def source(self, session: SqlSession) -> JournalSource:
        return JournalSource(session, HeadReader(session.database), shares=False)

    @pytest.fixture
    def connection(self, session: SqlSession) -> PostgresConnection:
        assert isinstance(session.connection, PostgresConnection)
        return session.connection

    def test_what_was_asked_for_is_what_is_read(
        self, app: App, source: JournalSource, add: Callable[[int], list[UUID]]
    ) -> None:
        ids = add(9)
        assert _read(source, 0) == ids[:3]
        source.head()  # What was asked for is in, and kept.
        execute(app, "DELETE FROM holdfast_event WHERE position > 3")
        assert _read(source, 3) == ids[3:6]

    def test_what_operators_may_have_changed_is_read_again(
        self, app: App, source: JournalSource, add: Callable[[int], list[UUID]]
    ) -> None:
        ids = add(9)
        assert _read(source, 0) == ids[:3]
        source.head()
        execute(app, "DELETE FROM holdfast_event WHERE position = 5")
        source.forget()
        assert _read(source, 3) == [ids[3], *ids[5:7]]

    @pytest.mark.parametrize("count", [3, 4, 5])
    def test_what_has_come_since_is_not_missed(
        self, source: JournalSource, add: Callable[[int], list[UUID]], count: int
    ) -> None:
        ids = add(count)
        assert _read(source, 0) == ids[:3]
        source.head()
        ids += add(2)
        assert _read(source, 3) == ids[3:6]

    def test_what_was_in_flight_when_it_was_asked_for(
        self, url: str, journal: Journal, source: JournalSource, add: Callable[[int], list[UUID]]
    ) -> None:
        """It becomes visible behind what was found: whoever went on there would lose it."""
        first = add(3)
        with psycopg.connect(url) as slow:
            slow_id = uuid4()
            journal.append("slow", [NewEvent({}, type="Slow", id=slow_id)], connection=slow)
            later = add(3)
            assert _read(source, 0) == first
            source.head()
            slow.commit()
        assert _read(source, 3) == [slow_id, *later[:2]]

    def test_another_place_is_read_than_was_asked_for(
        self, source: JournalSource, add: Callable[[int], list[UUID]]
    ) -> None:
        ids = add(9)
        assert _read(source, 0) == ids[:3]
        assert _read(source, 4) == ids[4:7]
        assert _read(source, 0, limit=2) == ids[:2]
        assert _read(source, 2, limit=4) == ids[2:6]
        assert _read(source, 6, limit=2) == ids[6:8]
        assert _read(source, 8, limit=3) == ids[8:]

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT pg_terminate_backend(%s)",
            "SELECT pg_cancel_backend(%s)",
        ],
    )
    def test_what_was_asked_for_fails(
        self,
        url: str,
        session: SqlSession,
        connection: PostgresConnection,
        source: JournalSource,
        add: Callable[[int], list[UUID]],
        statement: str,
    ) -> None:
        """Whatever is run next works, or says that the connection is gone."""
        ids = add(6)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("BEGIN; LOCK TABLE holdfast_event IN ACCESS EXCLUSIVE MODE")
            connection._read_ahead(**ASKED)
            pid = connection._raw.info.backend_pid
            waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
            wait_until(
                lambda: other.execute(waits, (pid,)).fetchone() == (1,), WAIT_SECONDS, "it to wait"
            )
            other.execute(statement, (pid,))
            if "terminate" in statement:
                with pytest.raises(StoreUnavailable, match="administrator command"):
                    connection.run("last_drawn")
                session.rest()
            else:
                assert connection.run("last_drawn") == [(6,)]
                assert connection._prefetch.take(**ASKED) is None
        assert _read(source, 3) == ids[3:]

    def test_nothing_is_asked_for_inside_a_transaction(
        self, connection: PostgresConnection, add: Callable[[int], list[UUID]]
    ) -> None:
        """Its end is the driver's, and would meet a connection that is at work."""
        add(6)
        with connection.transaction():
            connection._read_ahead(**ASKED)
        assert connection._prefetch.take(**ASKED) is None
        connection._read_ahead(**ASKED)
        assert len(connection._prefetch.take(**ASKED) or ()) == 3
        assert connection._prefetch.take(**ASKED) is None

    def test_an_answer_larger_than_all_buffers(
        self, journal: Journal, source: JournalSource, connection: PostgresConnection
    ) -> None:
        """The server waits until somebody takes it."""
        texts = [f"{n:04}" * 100_000 for n in range(40)]
        journal.append("large", [NewEvent({"t": text}, type="Large") for text in texts])
        source.read(0, 20)
        assert connection.run("last_drawn") == [(40,)]
        found = source.read(20, 20).events
        assert [event.data for event in found] == [f'{{"t":"{text}"}}' for text in texts[20:]]

    @pytest.mark.parametrize("seed", range(6))
    def test_rows_are_those_of_a_plain_fold(
        self, app: App, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        """Rows are loaded, written and committed while something is asked for."""
        chance = random.Random(seed)
        set_limits(app, chunk_events=chance.randint(2, 6), fold_events=50 * chance.randint(1, 3))
        used = _count_answers(monkeypatch)
        app.projection(Sums)
        sums: dict[str, int] = {}
        for _ in range(3):
            for _ in range(chance.randint(1, 40)):
                stream, n = str(chance.randrange(9)), chance.randrange(100)
                app.journal.append(stream, [Counted(n)])
                sums[stream] = sums.get(stream, 0) + n
            app.catch_up()
            assert dict(fetch(app, "SELECT stream, total FROM sums")) == sums
        assert used

    def test_large_events_of_all_sizes_are_read_ahead(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """How many are read at a time goes by their size, and is mostly the same."""
        chance = random.Random(1)
        set_limits(app, batch_bytes=64 * 1024)
        read, used = _count_reads(monkeypatch), _count_answers(monkeypatch)

        @app.projection
        class Sizes(TableProjection[Sum]):
            @on("Large")
            def large(self, row: Sum, event: Event[dict[str, str]]) -> None:
                row.total += len(event.data["t"])

        sizes = [chance.randint(500, 1_500) for _ in range(600)]
        app.journal.append("a", [NewEvent({"t": "x" * size}, type="Large") for size in sizes])
        app.catch_up()
        assert fetch(app, "SELECT stream, total FROM sizes") == [("a", sum(sizes))]
        assert len(read) > 20
        assert len(used) > 0.8 * len(read)


def _count_answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a number for every read that was answered before it was made."""
    used: list[int] = []

    def take(self: Prefetch, after: int, limit: int) -> Sequence[Row] | None:
        rows = before(self, after, limit)
        if rows is not None:
            used.append(len(rows))
        return rows

    before = Prefetch.take
    monkeypatch.setattr(Prefetch, "take", take)
    return used


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the limit of every read."""
    limits: list[int] = []

    def settled(self: PostgresConnection, after: int, limit: int, *, ahead: bool = False) -> Chunk:
        limits.append(limit)
        return before(self, after, limit, ahead=ahead)

    before = PostgresConnection.settled
    monkeypatch.setattr(PostgresConnection, "settled", settled)
    return limits


def _read(source: Source, after: int, *, limit: int = 3) -> list[UUID]:
    return [event.id for event in source.read(after, limit).events]
