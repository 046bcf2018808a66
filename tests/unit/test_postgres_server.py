"""The server that the crash tests kill must itself be beyond doubt."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.postgres import Databases, PostgresServer, is_alive, wait_until


def test_committed_rows_survive_kill_and_restart() -> None:
    with PostgresServer() as server:
        url = server.create_database()
        execute(url, "CREATE TABLE kept (n int)")
        for n in range(2):
            execute(url, f"INSERT INTO kept VALUES ({n})")
            postmaster = psutil.Process(server.pid)
            processes = [postmaster, *postmaster.children(recursive=True)]
            server.kill()

            assert len(processes) > 1
            assert not any(map(is_alive, processes))
            with pytest.raises(psycopg.OperationalError):
                execute(url, "SELECT 1")

            server.restart()
            assert execute(url, "SELECT count(*) FROM kept") == n + 1


def test_an_open_transaction_does_not_survive_a_kill() -> None:
    with PostgresServer() as server:
        url = server.create_database()
        execute(url, "CREATE TABLE kept (n int)")
        connection = psycopg.connect(url)
        connection.execute("INSERT INTO kept VALUES (1)")
        server.kill()
        connection.close()
        server.restart()

        assert execute(url, "SELECT count(*) FROM kept") == 0


def test_restart_keeps_data_and_port_after_stop_and_while_running() -> None:
    with PostgresServer() as server:
        url = server.create_database("named")
        execute(url, "CREATE TABLE kept AS SELECT 7 AS n")
        server.stop()
        server.restart()
        first = server.pid
        server.restart()

        assert server.pid != first
        assert server.url("named") == url
        assert execute(url, "SELECT n FROM kept") == 7


@pytest.mark.parametrize(("version", "durable", "fsync"), [(16, True, "on"), (18, False, "off")])
def test_version_and_durability_are_as_asked(version: int, durable: bool, fsync: str) -> None:
    with PostgresServer(version=version, durable=durable) as server:
        assert execute(server.url(), "SHOW fsync") == fsync
        assert execute(server.url(), "SHOW synchronous_commit") == fsync
        assert str(execute(server.url(), "SHOW server_version")).startswith(f"{version}.")


def test_databases_are_isolated(postgres_server: Databases) -> None:
    one, other = postgres_server.create_database(), postgres_server.create_database()
    execute(one, "CREATE TABLE mine (n int)")

    with pytest.raises(psycopg.errors.UndefinedTable):
        execute(other, "SELECT * FROM mine")

    postgres_server.drop_database(one)
    postgres_server.drop_database(other)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        execute(one, "SELECT 1")


def test_close_leaves_nothing() -> None:
    with PostgresServer() as server:
        folder = Path(str(execute(server.url(), "SHOW data_directory"))).parent
        server.kill()
    assert not folder.exists()
    server.close()


def test_the_server_dies_with_a_killed_test_process() -> None:
    script = (
        "from tests.support.postgres import PostgresServer\n"
        "server = PostgresServer(durable=False)\n"
        "server.start()\n"
        "print(server.pid, server.url(), flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pid, url = owner.stdout.readline().split()
        postmaster = psutil.Process(int(pid))
        folder = Path(str(execute(url, "SHOW data_directory"))).parent
        os.kill(owner.pid, signal.SIGKILL)

    wait_until(lambda: not folder.exists(), 30, "the watchdog to clear away the server")
    assert not is_alive(postmaster)


def test_store_url_is_fresh_on_each_kind(store_url: str, tmp_path: Path) -> None:
    if store_url.startswith("sqlite:///"):
        assert store_url == f"sqlite:///{tmp_path}/journal.db"
        assert not (tmp_path / "journal.db").exists()
    else:
        tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert execute(store_url, tables) == 0


def execute(url: str, statement: str) -> object:
    """Run one statement in a transaction of its own; the first value of the first row, if any."""
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None
