"""SQLAlchemy in handlers: rows commit with the checkpoint, or not at all."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    LargeBinary,
    MetaData,
    Numeric,
    Table,
    Uuid,
    create_engine,
    exc,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateTable

from holdfast import (
    App,
    Backoff,
    Event,
    HoldfastError,
    NewEvent,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    QueueSelection,
    Retry,
    Tx,
    on,
)
from holdfast.sqlalchemy import connection, session
from tests.contracts.samples import fetch, status_of
from tests.support.joining import sqlalchemy_url

EVENTS = 12
BAD = 7


@dataclass
class Counted:
    n: int


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "kept"

    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    times: Mapped[int] = mapped_column(default=1)
    note: Mapped[str] = mapped_column(default="")


DDL = str(CreateTable(Row.__table__))  # type: ignore[arg-type]
INSERT = text("INSERT INTO kept (n, times, note) VALUES (:n, 1, '')")

QUICK = Backoff(max_attempts=5, delay_seconds=0.001)
OTHER = NewEvent({}, type="Other")

Handle = Callable[[int, Tx], Any]


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "sqlite:///:memory:"
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    return str(request.getfixturevalue("emptied_postgres_url"))


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with App(url) as app:
        yield app


def register(app: App, handle: Handle, *, policy: Policy | None = None, **settings: Any) -> None:
    @app.projection(policy=policy or Policy(on_error=Park()), **settings)
    class Kept(Projection):
        tables: ClassVar = {"kept": DDL}
        calls_out = "delivery" in settings

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> Any:
            return handle(event.data.n, tx)


def append(app: App) -> None:
    """Each event in its own stream, so that a parked one closes no other lane."""
    for n in range(EVENTS):
        app.journal.append(str(n), [Counted(n)])


def kept(app: App) -> list[int]:
    return [row[0] for row in fetch(app, "SELECT n FROM kept ORDER BY n")]


def dead(app: App) -> dict[int, str | None]:
    """The numbers that failed, and how."""
    items = app.queue.list(QueueSelection(status="dead"))
    return {int(item.lane): item.error_type for item in items}


def all_but(*numbers: int) -> list[int]:
    return [n for n in range(EVENTS) if n not in numbers]


def test_objects_are_kept_and_found_again(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            row = s.get(Row, n % 5)
            if row is None:
                s.add(Row(n=n % 5, note="new"))
            else:
                row.times += 1
                row.note = s.scalars(select(Row.note).where(Row.n == 0)).one()

    register(app, handle)
    append(app)
    app.catch_up()
    append(app)
    app.catch_up()
    rows = fetch(app, "SELECT n, times, note FROM kept ORDER BY n")
    assert rows == [(0, 6, "new"), (1, 6, "new"), (2, 4, "new"), (3, 4, "new"), (4, 4, "new")]
    assert dead(app) == {}


def test_values_of_many_types(app: App) -> None:
    found: list[tuple[Any, ...]] = []
    values = {
        "a": {"list": [1, None, "x"]},
        "b": Decimal("12.50"),
        "c": datetime(2026, 1, 2, 3, 4, 5, 6),
        "d": uuid4(),
        "e": b"\x00\xff",
        "f": True,
    }
    table = Table(
        "wide",
        MetaData(),
        Column("a", JSON),
        Column("b", Numeric(10, 2)),
        Column("c", DateTime),
        Column("d", Uuid),
        Column("e", LargeBinary),
        Column("f", Boolean),
    )

    def handle(n: int, tx: Tx) -> None:
        with connection(tx) as c:
            table.create(c, checkfirst=True)
            c.execute(table.insert(), values)
            found.extend(map(tuple, c.execute(table.select().limit(1))))

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {}
    assert found == [tuple(values.values())] * EVENTS


def test_core_without_objects(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        with connection(tx) as c:
            c.execute(INSERT, [{"n": n}, {"n": -n - 1}])
            assert c.scalar(text("SELECT count(*) FROM kept")) == 2 * n + 2

    register(app, handle)
    append(app)
    app.catch_up()
    assert kept(app) == list(range(-EVENTS, EVENTS))


def test_a_coroutine(app: App) -> None:
    async def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
            await asyncio.sleep(0)

    register(app, handle)
    append(app)
    app.catch_up()
    assert kept(app) == all_but()


@pytest.mark.parametrize("when", ["inside", "committed", "begun", "nested", "after"])
@pytest.mark.parametrize("kind", ["session", "connection"])
def test_nothing_is_left_of_an_event_that_fails(app: App, kind: str, when: str) -> None:
    tries: list[int] = []

    def fail(n: int) -> None:
        if n == BAD:
            tries.append(n)
            raise ValueError("undo it")

    def work(n: int, c: Any) -> None:
        if when == "begun":
            with c.begin():
                c.execute(INSERT, {"n": n})
        elif when == "nested":
            c.execute(INSERT, {"n": n})
            with c.begin_nested():
                c.execute(INSERT, {"n": -n - 1})
                fail(n)
        else:
            c.execute(INSERT, {"n": n})
        if when == "committed":
            c.commit()
        if when != "after":
            fail(n)

    def handle(n: int, tx: Tx) -> None:
        with session(tx) if kind == "session" else connection(tx) as c:
            work(n, c)
        fail(n)

    register(app, handle)
    append(app)
    app.catch_up()
    assert [n for n in kept(app) if n >= 0] == all_but(BAD)
    assert dead(app) == {BAD: "ValueError"}
    assert tries == [BAD]


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_commit_and_rollback(app: App, kind: str) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) if kind == "session" else connection(tx) as c:
            c.execute(INSERT, {"n": n})
            c.commit()
            c.execute(INSERT, {"n": 100 + n})
            c.rollback()
            with c.begin():
                c.execute(INSERT, {"n": 200 + n})
            c.execute(INSERT, {"n": 300 + n})
            with suppress(ZeroDivisionError), c.begin_nested():
                c.execute(INSERT, {"n": 400 + n})
                raise ZeroDivisionError

    register(app, handle)
    append(app)
    app.catch_up()
    assert kept(app) == [hundred + n for hundred in (0, 200, 300) for n in all_but()]


def test_a_commit_is_not_visible_before_the_checkpoint(app: App, url: str) -> None:
    seen: list[int] = []

    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
            s.commit()
        if url != "sqlite:///:memory:":
            engine = create_engine(sqlalchemy_url(url), poolclass=NullPool)
            with engine.connect() as other:
                # The first event has position 1. What was committed before may be seen.
                behind = "SELECT n FROM kept WHERE n >= (SELECT position FROM holdfast_checkpoint)"
                seen.extend(other.scalars(text(behind)))

    register(app, handle)
    append(app)
    app.catch_up()
    assert seen == []
    assert kept(app) == all_but()


def test_an_event_that_is_retried_is_applied_once(app: App) -> None:
    tries: list[int] = []

    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
            s.commit()
        if n == BAD and len(tries) < 2:
            tries.append(n)
            raise ValueError("not yet")

    register(app, handle, policy=Policy(on_error=Retry(), backoff=QUICK))
    append(app)
    app.catch_up()
    assert kept(app) == all_but()
    assert tries == [BAD, BAD]


def test_rows_that_the_database_refuses(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=0 if n == BAD else n))

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {BAD: "IntegrityError"}
    assert kept(app) == all_but(BAD)


def test_a_session_can_go_on_after_a_refusal_and_a_rollback(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=0 if n == BAD else n))
            try:
                s.flush()
            except exc.IntegrityError:
                s.rollback()
                s.add(Row(n=100))

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {}
    assert kept(app) == [*all_but(BAD), 100]


def test_a_refusal_that_is_swallowed_fails_the_event(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=0 if n == BAD else n))
            with suppress(exc.IntegrityError):
                s.flush()

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {BAD: "PendingRollbackError"}
    assert kept(app) == all_but(BAD)


@pytest.mark.parametrize("way", ["COMMIT", "ROLLBACK"])
def test_a_statement_that_ends_the_transaction(app: App, way: str) -> None:
    """The statement is refused or noticed: the rows never differ from the checkpoint unnoticed."""
    broken = True

    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
            s.flush()
            if n == BAD and broken:
                s.execute(text(way))

    register(app, handle)
    append(app)
    if str(app.url).startswith("sqlite"):
        app.catch_up()
        assert dead(app) == {BAD: "DatabaseError"}
        assert kept(app) == all_but(BAD)
    else:
        for _ in range(2):
            with pytest.raises(ProjectionFaulted, match="holdfast reset kept"):
                app.catch_up()
        assert dead(app) == {}
        broken = False
        app.reset("kept")
        app.catch_up()
        assert kept(app) == all_but()


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
@pytest.mark.parametrize("when", ["first", "always"])
def test_a_lost_connection_is_not_the_events_fault_until_it_repeats(app: App, when: str) -> None:
    cuts: list[int] = []

    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
            if n == BAD and (when == "always" or not cuts):
                cuts.append(n)
                s.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    register(app, handle)
    append(app)
    app.catch_up(timeout_seconds=60)
    assert kept(app) == (all_but(BAD) if when == "always" else all_but())
    assert set(dead(app)) == ({BAD} if when == "always" else set())


def test_sessions_that_are_open_together(app: App) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) as outer:
            outer.execute(INSERT, {"n": n})
            with session(tx) as inner:
                assert inner.get(Row, n) is not None
                inner.execute(INSERT, {"n": 100 + n})
                inner.rollback()
                inner.execute(INSERT, {"n": 200 + n})
                if n == BAD:
                    outer.rollback()  # With it goes what the inner one is in.

    register(app, handle)
    append(app)
    app.catch_up()
    assert set(dead(app)) == {BAD}
    assert kept(app) == [*all_but(BAD), *(200 + n for n in all_but(BAD))]


def test_sessions_and_tx_share_the_transaction(app: App) -> None:
    insert = "INSERT INTO kept (n, times, note) VALUES ({}, 1, '')"

    def handle(n: int, tx: Tx) -> None:
        tx.write(insert.format(n))
        with session(tx) as s:
            assert s.get(Row, n) is not None
            s.add(Row(n=100 + n))
            s.flush()
            assert tx.fetch(f"SELECT n FROM kept WHERE n = {100 + n}") == [(100 + n,)]
            tx.write(insert.format(200 + n))
            assert s.get(Row, 200 + n) is not None
        tx.execute(insert.format(300 + n))

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {}
    assert kept(app) == [hundred + n for hundred in (0, 100, 200, 300) for n in all_but()]


def test_a_session_ends_with_its_block(app: App) -> None:
    left: list[Any] = []

    def handle(n: int, tx: Tx) -> None:
        for old in left:
            with pytest.raises((exc.InvalidRequestError, exc.ResourceClosedError)):
                old.execute(INSERT, {"n": 100 + n})
        left.clear()
        with session(tx) as s, connection(tx) as c:
            s.add(Row(n=n))
            left.extend((s, c))

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {}
    assert kept(app) == all_but()


def test_custom_session_classes_and_makers(app: App, url: str) -> None:
    """The engine that a sessionmaker is bound to, even for one class, is ignored."""

    class Own(Session):
        pass

    engine = create_engine(sqlalchemy_url(url))
    make = sessionmaker(engine, class_=Own, autoflush=False, binds={Row: engine})

    def handle(n: int, tx: Tx) -> None:
        with session(tx, make) as s:
            assert isinstance(s, Own)
            assert not s.autoflush
            s.add(Row(n=n))
            s.flush()
            assert tx.fetch(f"SELECT n FROM kept WHERE n = {n}") == [(n,)]

    register(app, handle)
    append(app)
    app.catch_up()
    engine.dispose()
    assert dead(app) == {}
    assert kept(app) == all_but()


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_an_append_joins(app: App, kind: str) -> None:
    def handle(n: int, tx: Tx) -> None:
        with session(tx) if kind == "session" else connection(tx) as c:
            app.journal.append("undone", [OTHER], connection=c, expected_version=0)
            c.rollback()
            app.journal.append(f"b-{n}", [OTHER], connection=c)
            c.execute(INSERT, {"n": n})
        if n == BAD:
            raise ValueError("undo it")

    register(app, handle)
    append(app)
    app.catch_up()
    streams = {event.stream for event in app.journal.read()}
    assert streams == {*map(str, all_but()), *(f"b-{n}" for n in all_but(BAD))}
    assert kept(app) == all_but(BAD)


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_the_isolation_level_can_not_be_changed(app: App, level: Any) -> None:
    def handle(n: int, tx: Tx) -> None:
        with connection(tx) as c:
            if n == BAD:
                with pytest.raises(HoldfastError, match="the transaction is the handler's"):
                    c.execution_options(isolation_level=level)
            c.execute(INSERT, {"n": n})

    register(app, handle)
    append(app)
    app.catch_up()
    assert dead(app) == {}
    assert kept(app) == all_but()


def test_outbox_delivery(app: App) -> None:
    """The transaction begins with the session."""

    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
            s.commit()
            if n == BAD:
                raise ValueError("undo it")

    register(app, handle, delivery="outbox", policy=Policy(on_error=Park()))
    append(app)
    app.catch_up()
    assert kept(app) == all_but(BAD)
    assert dead(app) == {BAD: "ValueError"}


def test_an_engine_on_the_drivers_connection_fails_only_its_event(app: App) -> None:
    """SQLAlchemy rolls back when it connects."""
    url = "sqlite://" if str(app.url).startswith("sqlite") else "postgresql+psycopg://"

    def handle(n: int, tx: Tx) -> None:
        with session(tx) as s:
            s.add(Row(n=n))
        if n == BAD:
            engine = create_engine(url, creator=lambda: tx.connection, poolclass=NullPool)
            with engine.begin() as c:
                c.execute(INSERT, {"n": 100})

    register(app, handle)
    append(app)
    app.catch_up(timeout_seconds=60)
    assert set(dead(app)) == {BAD}
    assert kept(app) == all_but(BAD)


@pytest.mark.parametrize("way", ["commit", "rollback", "with"])
def test_plain_code_for_the_driver(app: App, way: str) -> None:
    """Code for the driver can use cursors, and can't end the transaction."""

    def handle(n: int, tx: Tx) -> None:
        with closing(tx.connection.cursor()) as cursor:
            cursor.execute(f"INSERT INTO kept (n, times, note) VALUES ({n}, 1, '')")
            cursor.execute(f"SELECT times FROM kept WHERE n = {n}")
            assert cursor.fetchall() == [(1,)]
        if n == BAD:
            if way == "with":
                with tx.connection:
                    pass
            else:
                getattr(tx.connection, way)()

    register(app, handle)
    append(app)
    app.catch_up()
    expected = "DatabaseError" if str(app.url).startswith("sqlite") else "ProgrammingError"
    assert dead(app) == {BAD: expected}
    assert kept(app) == all_but(BAD)
    assert status_of(app, "kept").state == "stopped"
