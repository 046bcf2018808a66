"""Handlers' statements that come again and again are prepared, and nobody notices but the clock."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest

from holdfast import App, Event, Policy, Projection, Skip, Tx, on
from holdfast.core import handling
from holdfast.sql import postgres_statements
from holdfast.sql.postgres_statements import MAX_PREPARED, WORTH_TIMES
from holdfast.testing.contracts.samples import Counted, fetch
from tests.contract.databases import EMPTY

ROWS = "CREATE TABLE written (n bigint PRIMARY KEY, text text)"
INSERT = "INSERT INTO written (n) VALUES (%s)"
OURS = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'holdfast%%' AND statement = %s"

Handle = Callable[[int, Tx], None]


@pytest.fixture
def app(shared_postgres_url: str) -> Iterator[App]:
    with psycopg.connect(shared_postgres_url, autocommit=True) as connection:
        connection.execute(EMPTY)
    with App(shared_postgres_url) as app:
        yield app


def handle(app: App, function: Handle, *, events: int = 12) -> None:
    """Calls the function with the number of each event, in its handler; failures are skipped."""

    @app.projection(policy=Policy(on_error=Skip()))
    class Written(Projection):
        tables: ClassVar = {"written": ROWS}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            function(event.data.n, tx)

    app.journal.append("a", [Counted(n) for n in range(events)])
    app.catch_up()


def failed(app: App) -> dict[int, str | None]:
    return {item.position - 1: item.error_type for item in app.queue.list()}


def written(app: App) -> list[int]:
    return [row[0] for row in fetch(app, "SELECT n FROM written ORDER BY n")]


def test_a_statement_is_prepared_when_it_has_come_some_times(app: App) -> None:
    seen = []

    def insert(n: int, tx: Tx) -> None:
        assert tx.execute(INSERT, (n,)) == 1
        seen.append(tx.fetch(OURS, ("INSERT INTO written (n) VALUES ($1)",))[0][0])

    handle(app, insert, events=6)
    assert failed(app) == {}
    assert seen == [0] * WORTH_TIMES + [1] * (6 - WORTH_TIMES)
    assert written(app) == list(range(6))


def test_the_count_of_rows(app: App) -> None:
    counts: list[tuple[int, ...]] = []

    def change(n: int, tx: Tx) -> None:
        counts.append(
            (
                tx.execute(INSERT, (n,)),
                tx.execute("UPDATE written SET text = %s WHERE n < %s", ("x", n)),
                tx.execute("DELETE FROM written WHERE n = %s", (-1,)),
                tx.execute("SELECT n FROM written WHERE n <= %s", (n,)),
                tx.execute("UPDATE written SET n = n WHERE n <= %s RETURNING n", (n,)),
            )
        )

    handle(app, change)
    assert failed(app) == {}
    assert counts == [(1, n, 0, n + 1, n + 1) for n in range(12)]


VALUES = [
    1,
    40_000,
    2**40,
    2**80,
    None,
    "text",
    "50 % ünïcode",
    b"\0bytes",
    True,
    1.5,
    Decimal("1.50"),
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    UUID(int=7),
    [1, 2, None],
]


@pytest.mark.parametrize("named", [False, True])
def test_values_come_back_as_by_the_driver(app: App, named: bool) -> None:
    """All through the same statement, whatever their types."""
    statement = "SELECT %(v)s, %(n)s::int, 5 %% 3, %(v)s" if named else "SELECT %s, %s::int, 5 %% 3"
    ours: list[Any] = []
    drivers: list[Any] = []

    def read(n: int, tx: Tx) -> None:
        for value in VALUES:
            params: Any = {"v": value, "n": n, "more": 1} if named else [value, n]
            ours.append(tx.fetch(statement, params))

    def read_by_driver(n: int, tx: Tx) -> None:
        for value in VALUES:
            params: Any = {"v": value, "n": n, "more": 1} if named else [value, n]
            drivers.append(tx.connection.execute(statement, params).fetchall())

    def both(n: int, tx: Tx) -> None:
        (read_by_driver if n == 11 else read)(n % 4, tx)

    handle(app, both)
    assert failed(app) == {}
    assert ours[3 * len(VALUES) : 4 * len(VALUES)] == drivers
    assert ours[7 * len(VALUES) : 8 * len(VALUES)] == drivers


def test_events_that_fail_make_the_driver_forget_all_that_is_prepared(app: App) -> None:
    """It tells the server to, after a rollback; what is prepared here goes with it."""

    def insert(n: int, tx: Tx) -> None:
        tx.executemany(INSERT, [(1000 + n,)])  # So that the driver has something to forget.
        tx.execute(INSERT, (n,))
        if n % 5 == 4:
            tx.execute("SELECT %s::int / 0", (n,))
        assert tx.fetch("SELECT n FROM written WHERE n = %s", (n,)) == [(n,)]

    handle(app, insert, events=400)
    assert failed(app) == dict.fromkeys(range(4, 400, 5), "DivisionByZero")
    good = [n for n in range(400) if n % 5 != 4]
    assert written(app) == [*good, *(1000 + n for n in good)]


@pytest.mark.parametrize("way", ["execute", "write", "fetch", "several"])
def test_handlers_that_drop_tables_make_it_forget_as_well(app: App, way: str) -> None:
    def insert(n: int, tx: Tx) -> None:
        for k in range(WORTH_TIMES + 4):
            tx.executemany(INSERT, [(1000 * (n + 1) + k,)])
        tx.execute(INSERT, (n,))
        tx.execute("CREATE TEMPORARY TABLE gone (n int)")
        match way:
            case "execute":
                tx.execute("DROP TABLE gone")
            case "write":
                tx.write("DROP TABLE gone")
            case "fetch":
                with pytest.raises(psycopg.ProgrammingError):
                    tx.fetch("DROP TABLE gone")
            case "several":
                tx.execute("SELECT 1; DROP TABLE gone")

    handle(app, insert)
    assert failed(app) == {}
    assert [n for n in written(app) if n < 1000] == list(range(12))


def test_a_handlers_own_savepoint(app: App) -> None:
    def insert(n: int, tx: Tx) -> None:
        tx.executemany(INSERT, [(1000 + n,)])
        tx.execute(INSERT, (n,))
        tx.execute("SAVEPOINT own")
        with pytest.raises(psycopg.errors.UniqueViolation):
            tx.execute(INSERT, (n,))
        tx.execute("ROLLBACK TO SAVEPOINT own")
        tx.execute("UPDATE written SET text = %s WHERE n = %s", ("own", n))

    handle(app, insert)
    assert failed(app) == {}
    assert fetch(app, "SELECT count(*) FROM written WHERE text = 'own'") == [(12,)]


def test_an_event_whose_statement_fails_is_blamed_alone(app: App) -> None:
    def insert(n: int, tx: Tx) -> None:
        tx.execute(INSERT, (n // 2,))

    handle(app, insert, events=160)
    assert failed(app) == dict.fromkeys(range(1, 160, 2), "UniqueViolation")
    assert written(app) == list(range(80))


@pytest.mark.parametrize(
    ("statement", "params"),
    [
        (INSERT, (1, 2)),
        (INSERT, {"n": 1}),
        (INSERT, 5),
        ("INSERT INTO written (n) VALUES (%(n)s)", (1,)),
        ("INSERT INTO written (n) VALUES (%(n)s)", {"m": 1}),
        ("INSERT INTO written (n, text) VALUES (%(n)s, %s)", {"n": 1}),
        ("INSERT INTO written (n) VALUES (%d)", (1,)),
        (INSERT, (object(),)),
    ],
)
def test_what_the_driver_refuses_is_refused(app: App, statement: str, params: Any) -> None:
    errors = set()

    def insert(_: int, tx: Tx) -> None:
        with pytest.raises((psycopg.Error, TypeError)) as caught:
            tx.execute(statement, params)
        errors.add((caught.type, str(caught.value).split(" at 0x")[0]))

    handle(app, insert)
    assert failed(app) == {}
    assert len(errors) == 1, errors


def test_other_ways_to_write_parameters_are_left_to_the_driver(app: App) -> None:
    def read(n: int, tx: Tx) -> None:
        assert tx.fetch("SELECT %b::int, %t::text", (n, str(n))) == [(n, str(n))]
        assert tx.execute("/* one */ -- two\n  iNSERT INTO written VALUES (%s, '%%')", (n,)) == 1

    handle(app, read)
    assert failed(app) == {}
    assert fetch(app, "SELECT count(*) FROM written WHERE text = '%'") == [(12,)]


def test_what_returns_no_rows_is_run_once(app: App) -> None:
    def insert(n: int, tx: Tx) -> None:
        with pytest.raises(psycopg.ProgrammingError, match="didn't produce records"):
            tx.fetch(INSERT, (n,))

    handle(app, insert)
    assert failed(app) == {}
    assert written(app) == list(range(12))


def test_no_more_than_so_many_are_prepared(app: App) -> None:
    count: list[int] = []

    def read(n: int, tx: Tx) -> None:
        for k in range(MAX_PREPARED + 10):
            assert tx.fetch(f"SELECT %s + {k}", (n,)) == [(n + k,)]
        ours = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT $1 + %'"
        names = f"{ours} AND name LIKE 'holdfast%'"
        count.append(tx.fetch(names)[0][0])

    handle(app, read)
    assert failed(app) == {}
    assert count[-1] == MAX_PREPARED


def test_no_more_than_so_many_texts_are_remembered(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_statements, "MAX_TEXTS", 10)

    def read(n: int, tx: Tx) -> None:
        assert tx.execute(INSERT, (n,)) == 1
        assert tx.fetch(f"SELECT %s + {n}", (n,)) == [(2 * n,)]

    handle(app, read, events=100)
    assert failed(app) == {}
    assert written(app) == list(range(100))


def test_care_makes_no_difference(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handling, "LARGEST_GROUP", 4)

    def insert(n: int, tx: Tx) -> None:
        tx.write(INSERT, (1000 + n,))
        tx.execute(INSERT, (n,))
        if n % 7 == 3:
            raise ValueError(n)

    handle(app, insert, events=60)
    good = [n for n in range(60) if n % 7 != 3]
    assert failed(app) == {n: "ValueError" for n in range(60) if n % 7 == 3}
    assert written(app) == [*good, *(1000 + n for n in good)]
