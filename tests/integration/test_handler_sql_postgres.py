"""Handlers' SQL on PostgreSQL: what the driver prepares and forgets is no event's fault."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from holdfast import App, Event, Park, Policy, Projection, Skip, Tx, on
from tests.contracts.samples import WAIT_SECONDS, Counted, execute, fetch

ROWS = "CREATE TABLE written (n bigint PRIMARY KEY, text text)"
INSERT = "INSERT INTO written (n) VALUES (%s)"

Handle = Callable[[int, Tx], None]


@pytest.fixture
def app(emptied_postgres_url: str) -> Iterator[App]:
    with App(emptied_postgres_url) as app:
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
    # By what they look like: 1 equals True, and a moment equals itself in another time zone.
    assert repr(ours[3 * len(VALUES) : 4 * len(VALUES)]) == repr(drivers)
    assert repr(ours[7 * len(VALUES) : 8 * len(VALUES)]) == repr(drivers)


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


@pytest.mark.parametrize(
    "way",
    ["execute", "write", "bytes", "fetch", "several", "like", "alter", "written alter", "composed"],
)
def test_handlers_that_drop_or_alter_make_it_forget_as_well(app: App, way: str) -> None:
    def insert(n: int, tx: Tx) -> None:
        for k in range(8):
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
            case "like":  # Without parameters, this is no mark of one.
                tx.execute("DELETE FROM written WHERE text LIKE '%sale'; DROP TABLE gone")
            case "bytes":
                tx.write(b"DROP TABLE gone")  # type: ignore[arg-type]
            case "alter":
                tx.execute(f"ALTER TABLE gone RENAME TO gone_{n}")
            case "composed":
                tx.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("gone")))  # type: ignore[arg-type]
            case "written alter":
                tx.write(f"ALTER TABLE gone RENAME TO gone_{n}")

    handle(app, insert)
    assert failed(app) == {}
    assert [n for n in written(app) if n < 1000] == list(range(12))


@pytest.mark.parametrize("decision", [Skip(), Park()])
def test_a_column_that_others_alter_costs_no_event(app: App, decision: Skip | Park) -> None:
    """A statement that is still there is not always right."""

    @app.projection(policy=Policy(on_error=decision))
    class Written(Projection):
        tables: ClassVar = {"written": ROWS}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            n = event.data.n
            tx.execute("INSERT INTO written (n, text) VALUES (%s, %s)", (n, str(n)))

    app.journal.append("a", [Counted(n) for n in range(20)])
    with app.running():
        app.wait_for("written", app.journal.head(), timeout_seconds=WAIT_SECONDS)
        execute(app, "ALTER TABLE written ALTER COLUMN text TYPE int USING text::int")
        for n in range(20, 40):
            app.journal.append(f"b{n}", [Counted(n)])
            app.wait_for("written", app.journal.head(), timeout_seconds=WAIT_SECONDS)
    assert failed(app) == {}
    assert written(app) == [*range(40)]


def test_events_that_roll_back_alone_make_it_forget_as_well(app: App) -> None:
    """The driver swallows its own Rollback, which a handler may raise."""

    @app.projection(policy=Policy(on_error=Skip()), delivery="outbox")
    class Written(Projection):
        tables: ClassVar = {"written": ROWS}
        calls_out = True

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            n = event.data.n
            tx.executemany(INSERT, [(1000 + n,)])
            tx.execute(INSERT, (n,))
            if n % 10 == 7:
                raise psycopg.Rollback

    for n in range(40):
        app.journal.append(f"s{n}", [Counted(n)])
    app.catch_up()
    assert failed(app) == dict.fromkeys((7, 17, 27, 37), "Rollback")
    good = [n for n in range(40) if n % 10 != 7]
    assert written(app) == [*good, *(1000 + n for n in good)]


def test_what_is_forgotten_behind_our_back_is_nobodys_fault(app: App) -> None:
    def insert(n: int, tx: Tx) -> None:
        tx.execute(INSERT, (n,))
        if n in (7, 8):
            tx.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")

    handle(app, insert)
    assert failed(app) == {}
    assert written(app) == list(range(12))


@pytest.mark.parametrize("by_function", [False, True])
def test_moments_have_the_time_zone_of_the_moment(app: App, by_function: bool) -> None:
    zones = ["UTC", "Asia/Tokyo", "America/New_York"]
    seen = []

    def read(n: int, tx: Tx) -> None:
        zone = zones[n % 3]
        if by_function:
            tx.execute("SELECT set_config('timezone', %s, true)", (zone,))
        else:
            tx.execute(f"SET LOCAL TIME ZONE '{zone}'")
        ((at, _),) = tx.fetch("SELECT timestamptz '2026-01-01 20:00Z', %s", (n,))
        seen.append((str(at.tzinfo), at.day))

    handle(app, read)
    assert failed(app) == {}
    days = {"UTC": 1, "Asia/Tokyo": 2, "America/New_York": 1}
    assert seen == [(zones[n % 3], days[zones[n % 3]]) for n in range(12)]


def test_dates_are_read_as_they_are_written_at_the_moment(app: App) -> None:
    seen = []

    def read(n: int, tx: Tx) -> None:
        tx.execute(f"SET LOCAL datestyle = 'SQL, {('DMY', 'MDY')[n % 2]}'")
        seen.append(tx.fetch("SELECT date '2026-03-04', %s", (n,)))

    handle(app, read)
    assert failed(app) == {}
    assert seen == [[(date(2026, 3, 4), n)] for n in range(12)]


def test_rows_are_tuples(app: App) -> None:
    """Whatever a handler has made of the connection's rows."""
    seen = []

    def read(n: int, tx: Tx) -> None:
        if n == 2:
            tx.connection.row_factory = dict_row
        seen.append(tx.fetch("SELECT %s", (n,)))

    handle(app, read)
    assert failed(app) == {}
    assert seen == [[(n,)] for n in range(12)]


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


def test_an_event_that_fails_only_when_it_runs_again(app: App) -> None:
    """Its success counted already when a later event of its group failed, past one that waits."""
    calls: Counter[str] = Counter()

    @app.projection(policy=Policy(on_error=Park()))
    class Written(Projection):
        tables: ClassVar = {"written": ROWS}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            calls[event.stream] += 1
            if event.stream in ("closed", "bad") or (event.stream == "a" and calls["a"] == 2):
                raise ValueError(event.stream)
            tx.write(INSERT, (event.data.n,))

    app.journal.append("closed", [Counted(0)])
    app.catch_up()
    for n, stream in enumerate(["a", "closed", "b", "bad", "c"], 1):
        app.journal.append(stream, [Counted(n)])
    app.catch_up()
    assert written(app) == [1, 3, 5]
    assert [(item.lane, item.status) for item in app.queue.list()] == [
        ("closed", "dead"),
        ("closed", "pending"),
        ("bad", "dead"),
    ]
