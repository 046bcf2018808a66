"""The next events are asked for while those before them are applied: on PostgreSQL alone."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast import App, Event, Journal, NewEvent, StoreUnavailable, TableProjection, on
from holdfast.runtime.run import batch_reader as reading
from holdfast.runtime.store.source import Chunk, Source
from holdfast.sql.database import Database, Row
from holdfast.sql.journal.following_source import FollowingSource
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.postgres import database as postgres
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.postgres.prefetch import Answer
from holdfast.sql.store.head_poller import HeadPoller
from holdfast.sql.store.session import SqlSession
from holdfast.sql.store.shared_reads import SharedReads
from tests.contracts.running import Sum, Sums
from tests.contracts.samples import WAIT_SECONDS, Counted, execute, fetch
from tests.integration.databases import OnPostgres
from tests.support.postgres import wait_until

ASKED = {"after": 3, "limit": 3}


class TestReadingAhead(OnPostgres):
    @pytest.fixture
    def session(self, database: Database) -> Iterator[SqlSession]:
        with closing(SqlSession(database)) as session:
            yield session

    @pytest.fixture
    def source(self, session: SqlSession) -> JournalSource:
        return JournalSource(session, reads_ahead=True)

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

    def test_what_people_may_have_changed_is_read_again(
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
        add: Callable[[int], list[UUID]],
        statement: str,
    ) -> None:
        """Whatever is run next works, or says that the connection is gone."""
        ids = add(6)
        connection.read(**ASKED)  # To prepare it, the table must not be locked.
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("BEGIN; LOCK TABLE holdfast_event IN ACCESS EXCLUSIVE MODE")
            connection.ask(**ASKED)
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
                assert connection.answer() == Answer(ASKED, None)
        assert _read(JournalSource(session), 3) == ids[3:]

    def test_the_server_has_forgotten_the_statement(
        self,
        connection: PostgresConnection,
        source: JournalSource,
        add: Callable[[int], list[UUID]],
    ) -> None:
        ids = add(9)
        for after in (0, 3):
            connection.raw.execute("DEALLOCATE ALL")
            assert _read(source, after) == ids[after : after + 3]

    def test_nothing_is_asked_for_inside_a_transaction(
        self, connection: PostgresConnection, add: Callable[[int], list[UUID]]
    ) -> None:
        """Its end is the driver's, and would meet a connection that is at work."""
        add(6)
        with connection.transaction():
            connection.ask(**ASKED)
        assert connection.answer() is None
        connection.ask(**ASKED)
        answer = connection.answer()
        assert answer is not None
        assert answer.params == ASKED
        assert len(answer.rows or ()) == 3
        assert connection.answer() is None

    def test_those_who_go_together_don_t_read_ahead(
        self, database: Database, add: Callable[[int], list[UUID]]
    ) -> None:
        """Each of them would read what one can read for all."""
        ids, recent = add(30), SharedReads(database.bell)
        with (
            closing(HeadPoller(database)) as looks,
            closing(SqlSession(database)) as ours,
            closing(SqlSession(database)) as theirs,
        ):
            one, other = (
                FollowingSource(ours, looks, recent),
                FollowingSource(theirs, looks, recent),
            )
            assert not _asks(one, ours, 0), "it is not known yet who comes along"
            assert _asks(one, ours, 3), "nobody came"
            assert _read(other, 3) == ids[3:6]
            assert not _asks(one, ours, 6), "another one came"
            assert not _asks(other, theirs, 6), "it has taken what was read"
            assert not _asks(other, theirs, 9), "it reads, and may be followed"
            assert _asks(other, theirs, 12), "it was not"
            assert _asks(other, theirs, 15)

    def test_nobody_waits_for_others_before_its_answer_is_in(
        self, database: Database, add: Callable[[int], list[UUID]]
    ) -> None:
        """They may wait for somebody who waits for the lock that the server holds meanwhile."""
        add(12)
        waited: list[bool] = []

        class Watched(SharedReads):
            def read(self, after: int, limit: int, read: Callable[[], Chunk]) -> tuple[Chunk, int]:
                assert isinstance(session.connection, PostgresConnection)
                waited.append(session.connection._ahead._sent is not None)
                return super().read(after, limit, read)

        with closing(HeadPoller(database)) as looks, closing(SqlSession(database)) as session:
            source = FollowingSource(session, looks, Watched(database.bell))
            for after in (0, 3, 6, 9):
                source.read(after, 3)
        assert waited == [False] * 4

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
        monkeypatch.setattr(reading, "CHUNK_EVENTS", chance.randint(2, 6))
        monkeypatch.setattr(reading, "BATCH_EVENTS", chance.randint(1, 3))
        used = _count_answers(monkeypatch)
        app.projection(Sums)
        sums: dict[str, int] = {}
        for _ in range(3):
            for _ in range(chance.randint(1, 40)):
                stream, n = str(chance.randrange(9)), chance.randrange(100)
                app.journal.append(stream, [Counted(n)])
                sums[stream] = sums.get(stream, 0) + n
            app.catch_up()
            assert dict(fetch(app, "SELECT name, amount FROM sums")) == sums
        assert used

    def test_large_events_of_all_sizes_are_read_ahead(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """How many are read at a time goes by their size, and is mostly the same."""
        chance = random.Random(1)
        monkeypatch.setattr(reading, "BATCH_BYTES", 64 * 1024)
        read, used = _count_reads(monkeypatch), _count_answers(monkeypatch)

        @app.projection
        class Sizes(TableProjection[Sum]):
            @on("Large")
            def large(self, row: Sum, event: Event[dict[str, str]]) -> None:
                row.amount += len(event.data["t"])

        sizes = [chance.randint(500, 1_500) for _ in range(600)]
        app.journal.append("a", [NewEvent({"t": "x" * size}, type="Large") for size in sizes])
        app.catch_up()
        assert fetch(app, "SELECT name, amount FROM sizes") == [("a", sum(sizes))]
        assert len(read) > 20
        assert len(used) > 0.8 * len(read)


def _count_answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets a number for every read that was answered before it was made."""
    used: list[int] = []

    def asked(*args: Any) -> Sequence[Row] | None:
        rows = before(*args)
        if rows is not None:
            used.append(len(rows))
        return rows

    before = postgres._asked
    monkeypatch.setattr(postgres, "_asked", asked)
    return used


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the limit of every read."""
    limits: list[int] = []

    def settled(self: PostgresDatabase, connection: Any, after: int, limit: int) -> Chunk:
        limits.append(limit)
        return before(self, connection, after, limit)

    before = PostgresDatabase.settled
    monkeypatch.setattr(PostgresDatabase, "settled", settled)
    return limits


def _asks(source: FollowingSource, session: SqlSession, after: int) -> bool:
    """Whether it asks for the next three events when it reads these."""
    source.read(after, 3)
    assert isinstance(session.connection, PostgresConnection)
    return session.connection.answer() is not None


def _read(source: Source, after: int, *, limit: int = 3) -> list[UUID]:
    return [event.id for event in source.read(after, limit).events]
