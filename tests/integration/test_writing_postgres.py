"""What a handler writes on PostgreSQL goes through a pipeline, and nobody else notices that."""

import threading
from collections.abc import Callable, Iterator
from typing import ClassVar

import psycopg
import pytest

from holdfast import (
    App,
    Backoff,
    Event,
    Park,
    Policy,
    Poll,
    Projection,
    ProjectionFaulted,
    Skip,
    Tx,
    on,
)
from holdfast.runtime.signals import PollFailed, Signal
from tests.contracts.samples import WAIT_SECONDS, Counted, fetch
from tests.support.postgres import wait_until

GATE = 4712
INSERT = "INSERT INTO written VALUES (%s)"
ROWS = "CREATE TABLE written (n bigint PRIMARY KEY)"
DEFERRED = "CREATE TABLE written (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)"
QUICK = Poll(failure_backoff=Backoff(delay_seconds=0.01, max_delay_seconds=0.05))
SKIP = Policy(on_error=Skip())

Handle = Callable[[int, Tx], None]


@pytest.fixture
def app(emptied_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    with App(emptied_postgres_url) as app:
        yield app


def register(app: App, handle: Handle, *, policy: Policy = SKIP, ddl: str = ROWS) -> None:
    """A projection that writes a row an event, and then calls `handle`."""

    @app.projection(policy=policy, poll=QUICK)
    class Written(Projection):
        tables: ClassVar = {"written": ddl}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            tx.write(INSERT, (event.data.n,))
            handle(event.data.n, tx)


def append(app: App, events: int) -> None:
    app.journal.append("a", [Counted(n) for n in range(events)])


def written(app: App) -> list[int]:
    return [row[0] for row in fetch(app, "SELECT n FROM written ORDER BY n")]


def failed(app: App) -> dict[int, str | None]:
    """The numbers that are in the queue, and why."""
    return {item.position - 1: item.error_type for item in app.queue.list()}


def test_the_next_handler_is_called_before_a_statement_is_done(
    app: App, emptied_postgres_url: str
) -> None:
    opened = threading.Event()
    with psycopg.connect(emptied_postgres_url, autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(%s)", (GATE,))

        def open_gate() -> None:
            gate.execute("SELECT pg_advisory_unlock(%s)", (GATE,))

        def handle(n: int, tx: Tx) -> None:
            if n == 1:
                tx.write("SELECT pg_advisory_xact_lock(%s)", (GATE,))
            if n == 3:
                opened.set()
                open_gate()

        register(app, handle)
        append(app, 5)
        too_late = threading.Timer(WAIT_SECONDS, open_gate)
        too_late.start()
        app.catch_up()
        assert opened.is_set()
        assert too_late.is_alive(), "it was waited for"
        too_late.cancel()
        too_late.join()
    assert written(app) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("way", [["COMMIT"], ["COMMIT", "BEGIN"], ["ROLLBACK"]])
@pytest.mark.parametrize("fails_later", [False, True])
def test_a_transaction_that_is_ended_is_a_fault(
    app: App, way: list[str], fails_later: bool
) -> None:
    def handle(n: int, tx: Tx) -> None:
        if n == 2:
            for sql in way:
                tx.write(sql)
        if n == 4 and fails_later:
            tx.write("SELECT 1 / 0")

    register(app, handle)
    append(app, 6)
    for _ in range(2):
        with pytest.raises(ProjectionFaulted, match="holdfast reset written"):
            app.catch_up()
    assert app.queue.list() == []


def test_a_savepoint_of_the_handlers_own(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        tx.write("SAVEPOINT own")
        tx.write(INSERT, (n,))
        with pytest.raises(psycopg.errors.UniqueViolation):
            tx.execute("SELECT 1")
        tx.write("ROLLBACK TO SAVEPOINT own")
        tx.write(INSERT, (-n - 1,))

    register(app, handle)
    append(app, 20)
    app.catch_up()
    assert written(app) == list(range(-20, 20))
    assert failed(app) == {}


@pytest.mark.parametrize("second", range(2, 9))
@pytest.mark.parametrize("own", [False, True])
def test_statements_that_were_never_prepared_are_not_taken_for_prepared(
    app: App, monkeypatch: pytest.MonkeyPatch, second: int, own: bool
) -> None:
    """psycopg prepares a statement at its sixth use, which may be behind one that fails."""
    sick = {1, second}

    def handle(n: int, tx: Tx) -> None:
        if own and n in sick:
            tx.execute("SAVEPOINT own")
        if n in sick:
            tx.write("SELECT 1 / 0")
        tx.write("SELECT %s::bigint + 1", (n,))
        if own and n in sick:
            with pytest.raises(psycopg.errors.DivisionByZero):
                tx.execute("SELECT 1")
            tx.execute("ROLLBACK TO SAVEPOINT own")

    register(app, handle)
    append(app, 20)
    app.catch_up()
    lost = set() if own else sick
    assert failed(app) == dict.fromkeys(lost, "DivisionByZero")
    assert written(app) == [n for n in range(20) if n not in lost]


def test_an_error_is_shown_that_is_known_before_anybody_waits(
    app: App, emptied_postgres_url: str
) -> None:
    """And not what it has done to the statements behind it."""
    take = "SELECT pg_try_advisory_lock(%s)"

    def handle(n: int, tx: Tx) -> None:
        if n == 0:
            tx.execute("SELECT pg_advisory_xact_lock(%s)", (GATE,))
            tx.write(INSERT, (n,))
            tx.write("SELECT 1")
            with psycopg.connect(emptied_postgres_url, autocommit=True) as other:
                wait_until(  # The error lets go of the lock.
                    lambda: other.execute(take, (GATE,)).fetchone() == (True,),
                    WAIT_SECONDS,
                    "the error",
                )

    register(app, handle)
    append(app, 3)
    app.catch_up()
    assert failed(app) == {0: "UniqueViolation"}


@pytest.mark.parametrize(
    "sql", ["COPY written FROM STDIN", "COPY written TO STDOUT", "SELECT 1; SELECT 2", "nonsense"]
)
def test_what_can_not_be_written_is_its_events_fault(app: App, sql: str) -> None:
    register(app, lambda n, tx: tx.write(sql) if n == 7 else None)
    append(app, 20)
    app.catch_up()
    assert set(failed(app)) == {7}
    assert written(app) == [n for n in range(20) if n != 7]


def test_values_that_can_not_be_sent(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        if n == 7:
            tx.write("SELECT %s", (object(),))
        if n == 8:
            tx.write("SELECT %s", ("a\x00b",))
        if n == 9:
            tx.write("SELECT %s, %s", (1,))

    register(app, handle)
    append(app, 20)
    app.catch_up()
    assert set(failed(app)) == {7, 8, 9}
    assert written(app) == [n for n in range(20) if n not in (7, 8, 9)]


def test_what_only_the_commit_refuses(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        if n == 30:
            tx.write(INSERT, (3,))

    register(app, handle, policy=Policy(on_error=Park()), ddl=DEFERRED)
    append(app, 50)
    app.catch_up()
    assert failed(app)[30] == "UniqueViolation"
    assert written(app) == list(range(30))


def test_the_drivers_connection_is_a_plain_one(app: App) -> None:
    """COPY, several statements at once, counts and cursors on the server: no pipeline has them."""

    def handle(n: int, tx: Tx) -> None:
        connection = tx.connection
        tx.write(INSERT, (-n - 1,))
        assert connection.execute("UPDATE written SET n = n").rowcount == 2 * n + 2
        with connection.cursor().copy("COPY written FROM STDIN") as copy:
            copy.write_row((1000,))
        with connection.transaction(), connection.cursor("on_the_server") as cursor:
            assert len(cursor.execute("SELECT n FROM written").fetchall()) == 2 * n + 3
        tx.write(INSERT, (1001,))
        connection.execute("DELETE FROM written WHERE n = 1000; DELETE FROM written WHERE n = 1001")

    register(app, handle)
    append(app, 5)
    app.catch_up()
    assert failed(app) == {}
    assert written(app) == list(range(-5, 5))


def test_adapters_of_the_connection_are_used(app: App) -> None:
    class Tag:
        pass

    class Dumper(psycopg.adapt.Dumper):
        def dump(self, obj: object) -> bytes:
            return b"tag"

    def handle(n: int, tx: Tx) -> None:
        sql = "SELECT 1 WHERE 'tag' = %s::text"
        if n == 0:
            with pytest.raises(psycopg.ProgrammingError):
                tx.execute(sql, (Tag(),))
            tx.connection.adapters.register_dumper(Tag, Dumper)
        assert tx.execute(sql, (Tag(),)) == 1
        tx.write(sql, (Tag(),))

    register(app, handle)
    append(app, 3)
    app.catch_up()
    assert failed(app) == {}


def test_many_threads_in_one_handler(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        def work(k: int) -> None:
            for i in range(20):
                tx.write(INSERT, (1000 * (n + 1) + 20 * k + i,))
                if tx.execute("SELECT 1") != 1 or tx.fetch("SELECT %s::int", (i,)) != [(i,)]:
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    wrong: list[int] = []
    register(app, handle)
    append(app, 3)
    app.catch_up()
    assert not wrong
    assert fetch(app, "SELECT count(*) FROM written") == [(3 * 81,)]


@pytest.mark.parametrize("at", [0, 1, 40, 150])
def test_an_event_that_always_loses_the_connection_is_blamed(app: App, at: int) -> None:

    def handle(n: int, tx: Tx) -> None:
        if n == at:
            tx.write("SELECT pg_terminate_backend(pg_backend_pid())")

    register(app, handle)
    append(app, 200)
    losses: list[Signal] = []
    app.listen(lambda signal: losses.append(signal) if isinstance(signal, PollFailed) else None)
    app.catch_up(timeout_seconds=60)
    assert len(losses) < 20  # The session after a loss waits for each event.
    assert set(failed(app)) == {at}
    assert written(app) == [n for n in range(200) if n != at]


def test_one_that_does_so_twice_is_not(app: App) -> None:
    cuts: list[int] = []

    def handle(n: int, tx: Tx) -> None:
        if n == 40 and len(cuts) < 2:
            cuts.append(n)
            tx.write("SELECT pg_terminate_backend(pg_backend_pid())")

    register(app, handle)
    append(app, 200)
    app.catch_up(timeout_seconds=60)
    assert failed(app) == {}
    assert written(app) == list(range(200))


def test_deadlocks_are_nobodys_fault(app: App) -> None:
    tried: list[int] = []

    def handle(n: int, tx: Tx) -> None:
        if n == 40:
            tried.append(n)
            if len(tried) <= 5:
                tx.write("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40P01'; END $$")

    register(app, handle)
    append(app, 200)
    app.catch_up(timeout_seconds=60)
    assert failed(app) == {}
    assert written(app) == list(range(200))
    assert len(tried) > 5
