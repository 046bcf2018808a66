"""Limits of time: a runner has none, appends and reads keep their role's, and nobody hangs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import quote

import psycopg
import pytest

from holdfast import App, StoreConflict, StoreUnavailable
from holdfast.sql.postgres.connection import PostgresConnection
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.url import PostgresUrl
from tests.contracts.samples import WAIT_SECONDS, Counted
from tests.support.postgres import Databases, PostgresServer, wait_until

LIMITS = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
LIMITS += ["idle_session_timeout", "transaction_timeout"]
SHOW = "SELECT current_setting(name) FROM pg_settings WHERE name = %(name)s"
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"


def limited(url: str, **limits: str) -> str:
    """The URL with limits, as the role might have them."""
    options = " ".join(f"-c {name}={value}" for name, value in limits.items())
    return f"{url}?options={quote(options)}"


@pytest.fixture(scope="module", params=[16, 18])
def server(request: pytest.FixtureRequest) -> Iterator[Databases]:
    if request.param == 16:
        yield request.getfixturevalue("postgres_server")
        return
    with PostgresServer(durable=False, version=18) as newer:
        yield newer


def test_a_runner_has_no_limits_and_an_append_keeps_those_of_its_role(server: Databases) -> None:
    url = server.url()
    with psycopg.connect(url) as plain:
        known = "SELECT name FROM pg_settings WHERE name = ANY (%s)"
        names = [row[0] for row in plain.execute(known, (LIMITS,))]
        assert len(names) == (5 if plain.info.server_version >= 170_000 else 4)
    with closing(PostgresDatabase(PostgresUrl(limited(url, **dict.fromkeys(names, "33s"))))) as db:

        def shown(connection: PostgresConnection) -> set[str]:
            return {connection.run_native(SHOW, {"name": name})[0][0] for name in names}

        with db.reading() as reading:
            assert shown(reading) == {"33s"}
        with db.changing(33) as changing:
            assert shown(changing) == {"33s", "0"}
        with closing(db.connect()) as runner:
            assert shown(runner) == {"0"}


def test_without_a_limit_of_the_role_nobody_waits_for_ever(postgres_url: str) -> None:
    with closing(PostgresDatabase(PostgresUrl(postgres_url))) as db, db.reading() as own:
        assert own.run_native(SHOW, {"name": "lock_timeout"}) == [("10s",)]


@pytest.fixture
def hung(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection whose transaction has appended to stream `hung`, and does not end."""
    with App(postgres_url) as app, psycopg.connect(postgres_url) as hanging:
        app.journal.append("hung", [Counted(n=1)])
        app.journal.append("hung", [Counted(n=2)], connection=hanging)
        yield hanging


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_an_append_that_waits_too_long_says_for_whom(
    postgres_url: str, hung: psycopg.Connection, limit: str
) -> None:
    with App(limited(postgres_url, **{limit: "100ms"})) as app:
        holder = f"process {hung.info.backend_pid} .*idle in transaction"
        with pytest.raises(StoreUnavailable, match=f"'hung'.*{holder}") as told:
            app.journal.append("hung", [Counted(n=3)])
        assert not isinstance(told.value, StoreConflict)
        assert app.journal.append("other", [Counted(n=1)]).version == 1


def test_a_pool_with_no_connection_left_says_what_they_wait_for(
    postgres_url: str, hung: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sql.postgres.database.POOL_CONNECTIONS", 2)
    monkeypatch.setattr("holdfast.sql.postgres.database.CONNECT_SECONDS", 0.2)
    with (
        App(postgres_url) as app,
        psycopg.connect(postgres_url, autocommit=True) as watcher,
        ThreadPoolExecutor(2) as threads,
    ):
        app.migrate()
        appends = [threads.submit(app.journal.append, "hung", [Counted(n=3)]) for _ in range(2)]
        wait_until(lambda: watcher.execute(WAITING).fetchone() == (2,), WAIT_SECONDS, "them")
        wait = f"all 2 connections.*2 wait for process {hung.info.backend_pid} "
        with pytest.raises(StoreUnavailable, match=wait):
            app.journal.head()
        hung.rollback()
        assert [append.result(WAIT_SECONDS).version for append in appends]
