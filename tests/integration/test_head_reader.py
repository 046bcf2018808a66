"""Reads that the runners of a process share: the same as if each had read for itself."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from uuid import UUID

import psycopg
import pytest

from holdfast import App, Journal, NewEvent
from holdfast.runtime.store.source import Chunk
from holdfast.sql.database import Database
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.store import head_reader as module
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import concurrently
from tests.integration.databases import OnDatabase, OnPostgres, OnSqliteFile, OnSqliteMemory

RUNNERS = 4
EVENTS = 300

Add = Callable[[int], list[UUID]]


class HeadReaderTests(OnDatabase):
    @pytest.fixture
    def reader(self, database: Database) -> Iterator[HeadReader]:
        with closing(HeadReader(database)) as opened:
            yield opened

    @pytest.fixture
    def reads(self, reader: HeadReader, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Gets the position of every read of the journal that the head reader makes."""
        afters: list[int] = []
        connection = reader._connect()
        settled = connection.settled

        def counted(after: int, limit: int, *, ahead: bool = False) -> Chunk:
            afters.append(after)
            return settled(after, limit, ahead=ahead)

        monkeypatch.setattr(connection, "settled", counted)
        return afters

    def test_one_read_is_for_all(self, reader: HeadReader, reads: list[int], add: Add) -> None:
        ids = add(5)
        for _ in range(3):
            assert _ids(reader, 0, limit=10) == ids
            assert _ids(reader, 2, limit=10) == ids[2:]
            assert _ids(reader, 5, limit=10) == []
        assert reads == [0]

    def test_a_limit_is_kept_and_what_follows_is_said(
        self, reader: HeadReader, reads: list[int], add: Add
    ) -> None:
        ids = add(7)
        chunk = _read(reader, 0, limit=3)
        assert ([event.id for event in chunk.events], chunk.more) == (ids[:3], False)
        assert _ids(reader, 1, limit=3) == ids[1:4], "a full read is not the end of the journal"
        chunk = _read(reader, 0, limit=2)
        assert ([event.id for event in chunk.events], chunk.more) == (ids[:2], True)
        assert _ids(reader, 6, limit=3) == ids[6:]
        assert reads == [0, 3, 6]

    def test_a_wake_up_is_news(
        self, reader: HeadReader, database: Database, reads: list[int], add: Add
    ) -> None:
        ids = add(2)
        chunk, wakes = _found(reader, 0)
        assert (len(chunk.events), wakes) == (2, database.wake.count)
        ids += add(1)
        assert _found(reader, 0)[1] == database.wake.count
        assert _ids(reader, 0, limit=10) == ids
        database.wake.notify()
        assert _ids(reader, 3, limit=10) == []
        assert reads == [0, 2, 3]

    def test_a_poll_finds_what_nobody_has_announced(
        self, reader: HeadReader, database: Database, journal: Journal, reads: list[int], add: Add
    ) -> None:
        add(1)
        assert len(_ids(reader, 0)) == 1
        with database.writing() as connection:
            joined = connection.tx.connection
            journal.append("quiet", [NewEvent({}, type="Added")], connection=joined)
        assert reader.snapshot(3600.0).head == 2
        assert len(_ids(reader, 1)) == 1
        assert reads == [0, 1]

    def test_a_snapshot_is_shared_until_it_is_too_old(
        self, reader: HeadReader, database: Database, add: Add
    ) -> None:
        add(1)
        first = reader.snapshot(3600.0)
        assert reader.snapshot(3600.0) is first
        assert reader.snapshot(0.0) is not first
        database.wake.notify()
        assert reader.snapshot(3600.0).wakes == database.wake.count

    def test_who_is_behind_reads_for_itself(
        self, reader: HeadReader, add: Add, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "KEPT_BYTES", 10 * module.EVENT_BYTES)
        ids = add(40)
        after = 0
        while after < 40:
            found = _ids(reader, after, limit=4)
            assert found == ids[after : after + 4]
            after += 4
        assert reader.read(0, 4) is None
        assert not reader.covers(20)
        assert reader.read(38, 4) is not None

    def test_who_is_ahead_moves_the_others_on(self, reader: HeadReader, add: Add) -> None:
        ids = add(9)
        assert _ids(reader, 0, limit=2) == ids[:2]
        assert _ids(reader, 6, limit=2) == ids[6:8]
        assert reader.read(2, 2) is None

    def test_what_an_operator_may_have_changed_is_read_again(
        self, reader: HeadReader, reads: list[int], add: Add
    ) -> None:
        ids = add(3)
        assert _ids(reader, 0) == ids
        reader.forget()
        assert _ids(reader, 0) == ids
        assert reads == [0, 0]

    def test_who_rests_keeps_little(
        self, reader: HeadReader, add: Add, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "IDLE_BYTES", 5 * module.EVENT_BYTES)
        ids = add(20)
        assert _ids(reader, 0, limit=50) == ids
        reader.rest()
        assert len(reader._events) <= 5
        assert _ids(reader, 18, limit=50) == ids[18:]

    @pytest.mark.parametrize("seed", range(3))
    def test_all_runners_see_all_events_in_order(
        self, app: App, database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
    ) -> None:
        """Beside writers, with few events kept, and with runners that forget or pause."""
        chance = random.Random(seed)
        monkeypatch.setattr(module, "KEPT_BYTES", chance.choice((3, 20, 1000)) * 700)
        monkeypatch.setattr(module, "IDLE_BYTES", chance.choice((1, 5)) * 700)
        limits = [chance.randint(1, 9) for _ in range(RUNNERS)]
        seen: list[list[int]] = [[] for _ in range(RUNNERS)]
        with closing(HeadReader(database)) as reader, ExitStack() as stack:
            sessions = [stack.enter_context(closing(SqlSession(database))) for _ in seen]

            def run(n: int) -> None:
                if n == RUNNERS:
                    for k in range(EVENTS):
                        app.journal.append(str(k % 7), [NewEvent({"k": k}, type="Added")])
                    return
                source, own = JournalSource(sessions[n], reader, shares=True), seen[n]
                while not own or own[-1] < EVENTS:
                    chunk = source.read(own[-1] if own else 0, limits[n])
                    own.extend(event.position for event in chunk.events)
                    if len(own) % 50 == 49:
                        source.forget()
                    if not chunk.events:
                        source.wait(0.05)

            concurrently(RUNNERS + 1, run)
        assert seen == [[event.position for event in app.journal.read()]] * RUNNERS


class TestOnSqliteFile(OnSqliteFile, HeadReaderTests):
    """In a file, with WAL."""


class TestOnSqliteMemory(OnSqliteMemory, HeadReaderTests):
    """In memory, as tests use it."""


class TestOnPostgres(OnPostgres, HeadReaderTests):
    """On a server."""

    def test_what_is_held_back_is_looked_for_again(
        self, url: str, reader: HeadReader, reads: list[int], journal: Journal, add: Add
    ) -> None:
        first = add(1)
        with psycopg.connect(url) as slow:
            journal.append("slow", [NewEvent({}, type="Slow")], connection=slow)
            later = add(1)
            for _ in range(2):
                chunk = _read(reader, 0)
                assert ([event.id for event in chunk.events], chunk.held) == (first, True)
            slow.commit()
        chunk = _read(reader, 1)
        assert ([event.id for event in chunk.events][1:], chunk.held) == (later, False)
        assert reads == [0, 1, 1]

    def test_who_rests_leaves_no_lock_behind(
        self, url: str, reader: HeadReader, journal: Journal
    ) -> None:
        """The server holds one until its answer is taken, if that is large."""
        texts = [f"{n:04}" * 100_000 for n in range(40)]
        journal.append("large", [NewEvent({"t": text}, type="Large") for text in texts])
        assert len(_ids(reader, 0, limit=20)) == 20
        reader.rest()
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SET lock_timeout = '10s'")
            other.execute("ALTER TABLE holdfast_event SET (fillfactor = 100)")

    def test_nobody_waits_for_others_while_its_answer_is_outstanding(
        self, database: Database, add: Add, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They may wait for somebody who waits for the lock that the server holds meanwhile."""
        ids = add(12)
        with closing(HeadReader(database)) as reader, closing(SqlSession(database)) as session:
            assert _ids(reader, 6, limit=2) == ids[6:8]
            source, outstanding = JournalSource(session, reader, shares=True), []
            read = HeadReader.read

            def watched(self: HeadReader, after: int, limit: int) -> tuple[Chunk, int] | None:
                assert isinstance(session.connection, PostgresConnection)
                outstanding.append(session.connection._prefetch._sent is not None)
                return read(self, after, limit)

            monkeypatch.setattr(HeadReader, "read", watched)
            found = [event.id for at in (0, 3, 6, 9) for event in source.read(at, 3).events]
        assert found == ids
        assert outstanding == [False, False, False]  # At 3, the read ahead is taken.


def _found(reader: HeadReader, after: int, *, limit: int = 10) -> tuple[Chunk, int]:
    found = reader.read(after, limit)
    assert found is not None
    return found


def _read(reader: HeadReader, after: int, *, limit: int = 10) -> Chunk:
    return _found(reader, after, limit=limit)[0]


def _ids(reader: HeadReader, after: int, *, limit: int = 10) -> list[UUID]:
    return [event.id for event in _read(reader, after, limit=limit).events]
