"""Nobody who may create objects in our schema can have code of theirs run by our statements."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

import psycopg

from holdfast import (
    App,
    Event,
    NewEvent,
    Park,
    Policy,
    Projection,
    QueueSelection,
    SqlProjection,
    TableProjection,
    Tx,
    on,
)
from holdfast.sql.queries import _files, query
from tests.contracts.samples import SUMS, WAIT_SECONDS, Counted, Sums, fetch
from tests.support.traps import plant

STATEMENTS = {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}
NUMBERS = {"integer", "bigint", "double precision"}
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
PINNED = "SELECT proname, proconfig FROM pg_proc WHERE proname LIKE 'holdfast%'"


TRAPS_OF = """
    SELECT DISTINCT p.proname
    FROM pg_depend AS d
    JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    WHERE p.pronamespace = 'checked'::regnamespace AND (
        d.refobjid IN (SELECT oid FROM pg_proc WHERE prosrc LIKE '%trapped%')
        OR d.refobjid IN (SELECT oid FROM pg_operator WHERE oprnamespace = 'public'::regnamespace)
    )
"""


@dataclass
class Day:
    """A row whose key has two columns."""

    stream: str
    day: int
    events: int = 0


def test_statements_run_no_operator_or_function_of_others(postgres_url: str) -> None:
    plant(postgres_url)
    with App(postgres_url) as app:
        register(app)
        first = uuid4()
        for _ in range(2):
            app.journal.append("a", [NewEvent({"n": 1}, type="Counted", id=first)])
        app.journal.append("a", [Counted(13), Counted(3)], expected_version=1)
        app.outbox.send("mail", {"n": 1}, key="k")
        app.catch_up()
        assert fetch(app, SUMS) == [("a", 17)]
        assert [item.status for item in app.queue.list()].count("dead") == 2
        app.queue.requeue(QueueSelection(status="dead"), by="ann")
        app.catch_up()
        assert app.status()
        assert app.explain("lines")
        assert app.queue.stats()
        assert app.outbox.report()
        app.reset("days", by="ann")
        with app.running():
            position = app.journal.append("b", [Counted(1)]).position
            app.wait_for("days", position, timeout_seconds=WAIT_SECONDS)
        assert app.reshard("sums", by="ann", shards=3) == 3
        assert len([*app.journal.read()]) == 4


def test_every_named_statement_names_exact_types(postgres_url: str) -> None:
    """Each becomes the body of a function, whose dependencies the server knows."""
    with App(postgres_url) as app, psycopg.connect(postgres_url, autocommit=True) as other:
        app.migrate()
        statements = {name: numbered(query(name, "postgres")) for name in _files("postgres")}
        statements = {n: sql for n, sql in statements.items() if sql.split()[0] in STATEMENTS}
        types = {name: parameter_types(other, sql) for name, sql in statements.items()}
        plant(postgres_url)
        other.execute("CREATE SCHEMA checked")
        for name, sql in statements.items():
            other.execute(
                f"CREATE FUNCTION checked.{name}({', '.join(types[name])}) RETURNS void "
                f"BEGIN ATOMIC {sql}; END".encode()
            )
        other.execute("SET search_path = pg_catalog")
        assert other.execute(TRAPS_OF.encode()).fetchall() == []
        assert len(statements) > 100


def numbered(sql: str) -> str:
    """The statement with a `$n` for each parameter, the same one wherever it stands."""
    found: dict[str, int] = {}
    return PARAMETER.sub(lambda m: f"${found.setdefault(m[1], len(found) + 1)}", sql)


def parameter_types(connection: psycopg.Connection[Any], sql: str) -> list[str]:
    """The types of parameters as the driver sends them: small numbers are small types."""
    connection.execute(f"PREPARE checked AS {sql}".encode(), prepare=False)
    known = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'checked'"
    (types,) = connection.execute(known).fetchone() or ([],)
    connection.execute("DEALLOCATE checked", prepare=False)
    return ["smallint" if name in NUMBERS else name for name in types]


def test_our_functions_see_our_schema_alone(postgres_url: str) -> None:
    """Even a search path that has another schema before the server's own is none of theirs."""
    url = f"{postgres_url}?options=-csearch_path%3Dours"
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("CREATE SCHEMA ours; CREATE SCHEMA evil")
        other.execute(
            "CREATE FUNCTION evil.hashtext(text) RETURNS int LANGUAGE plpgsql "
            "AS $$BEGIN RAISE 'trapped'; END$$"
        )
        with App(url) as app:
            app.journal.append("a", [Counted(1)])
            other.execute("SET search_path = evil, pg_catalog, ours")
            with other.transaction():
                app.journal.append("a", [Counted(2)], connection=other)
            assert app.journal.stream_version("a") == 2
        found: dict[str, list[str]] = dict(other.execute(PINNED).fetchall())
    assert sorted(found) == ["holdfast_append", "holdfast_send"]
    assert all("search_path=ours, pg_temp" in settings for settings in found.values())


def register(app: App) -> None:
    """A projection of each kind."""
    app.projection(shards=2)(Sums)

    @app.projection
    class Days(TableProjection[Day]):
        key_fields = ("stream", "day")

        def key(self, event: Event[Any]) -> tuple[str, int]:
            return event.stream, event.recorded_at.day

        @on(Counted)
        def counted(self, row: Day, event: Event[Counted]) -> None:
            row.events += 1

    @app.projection(policy=Policy(on_error=Park()))
    class Lines(Projection):
        tables: ClassVar = {"lines": "CREATE TABLE lines (n bigint)"}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            if event.data.n == 13:
                raise ValueError(event.data.n)
            tx.execute("INSERT INTO lines VALUES (%s)", (event.data.n,))

    @app.projection
    class Ranges(SqlProjection):
        tables: ClassVar = {"ranges": "CREATE TABLE ranges (n bigint)"}
        events = (Counted,)
        sql = "INSERT INTO ranges SELECT n FROM batch ORDER BY position"

    @app.projection(delivery="outbox", policy=Policy(on_error=Park()))
    class Queued(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            if event.data.n == 13:
                raise ValueError(event.data.n)

    @app.sink()
    class Mails(Projection):
        @on("mail")
        def mail(self, event: Event[Any], tx: Tx) -> None:
            return None
