"""What handlers do to their connection, and others to its tables, while a worker runs."""

from collections.abc import Callable
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast import App, Event, Projection, Tx, on
from holdfast.runtime.signals import PollFailed, Signal
from tests.contracts.samples import WAIT_SECONDS, Counted, Sums, fetch
from tests.support.limits import set_limits

EVENTS = 30


def take_dicts(connection: psycopg.Connection[Any]) -> None:
    connection.row_factory = dict_row


def prepare_everything(connection: psycopg.Connection[Any]) -> None:
    connection.prepare_threshold = 0


@pytest.mark.parametrize("change", [take_dicts, prepare_everything])
def test_a_handler_that_changes_its_connection_is_no_harm(
    postgres_url: str, change: Callable[[psycopg.Connection[Any]], None]
) -> None:
    with App(postgres_url) as app:
        app.migrate()

        @app.projection
        class Lines(Projection):
            tables: ClassVar = {"lines": "CREATE TABLE lines (n int)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                change(tx.connection)
                tx.execute("INSERT INTO lines VALUES (%s)", (event.data.n,))

        with app.running():
            for n in range(EVENTS):
                position = app.journal.append(f"stream {n % 3}", [Counted(n=n)]).position
                app.wait_for("lines", position, timeout_seconds=WAIT_SECONDS)
        assert fetch(app, "SELECT n FROM lines ORDER BY n") == [(n,) for n in range(EVENTS)]


def test_a_column_that_is_altered_meanwhile_is_seen(postgres_url: str) -> None:
    """The server refuses a statement that it has prepared for the table as it was."""
    failures: list[str] = []

    def listen(signal: Signal) -> None:
        if isinstance(signal, PollFailed):
            failures.append(signal.error)

    with App(postgres_url) as app:
        app.migrate()
        set_limits(app, cached_rows=0)
        app.listen(listen)

        app.projection(Sums)
        with app.running():
            for n in range(EVENTS):
                if n == EVENTS // 2:
                    with psycopg.connect(postgres_url) as other:
                        other.execute("ALTER TABLE sums ALTER COLUMN stream TYPE varchar(100)")
                position = app.journal.append("a", [Counted(n=1)]).position
                app.wait_for("sums", position, timeout_seconds=WAIT_SECONDS)
        assert fetch(app, "SELECT stream, total FROM sums") == [("a", EVENTS)]
    assert len(failures) == 1
    assert "a table was altered meanwhile" in failures[0]
