"""Somebody cancels holdfast's own statements on PostgreSQL: no event is to blame, nothing stops."""

from collections.abc import Iterator
from typing import Any, ClassVar

import psycopg
import pytest

from holdfast import App, Backoff, Event, Park, Policy, Poll, Projection, Tx, on
from holdfast.errors import StoreUnavailable
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.url import PostgresUrl
from tests.contracts.samples import WAIT_SECONDS, Counted, Sums
from tests.support.limits import set_limits
from tests.support.postgres import wait_until

CANCELLED = 10
CANCEL = (
    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND state = 'active'"
)
POLL = Poll(
    failure_backoff=Backoff(delay_seconds=0.01, max_delay_seconds=0.01),
    max_consecutive_failures=None,
)


class Seen(Projection):
    """Its handlers run no statement that could be cancelled."""

    tables: ClassVar[dict[str, str]] = {}
    seen: ClassVar[set[int]] = set()

    @on(Counted)
    def counted(self, event: Event[Counted], _: Tx) -> None:
        self.seen.add(event.position)


@pytest.fixture
def app(emptied_postgres_url: str) -> Iterator[App]:
    Seen.seen.clear()
    with App(emptied_postgres_url) as app:
        set_limits(app, chunk_events=3, batch_events=1, fold_events=3)
        yield app


@pytest.mark.parametrize(
    ("kind", "settings"), [(Sums, {}), (Seen, {}), (Seen, {"delivery": "outbox"})]
)
def test_cancelled_statements_stop_nothing(
    app: App, emptied_postgres_url: str, kind: type[Any], settings: dict[str, Any]
) -> None:
    app.projection(name="counted", policy=Policy(on_error=Park()), poll=POLL, **settings)(kind)
    app.catch_up()
    appended, cancelled = 0, 0
    with psycopg.connect(emptied_postgres_url, autocommit=True) as other, app.running() as running:

        def cancel() -> bool:
            nonlocal appended, cancelled
            app.journal.append(f"s{appended % 7}", [Counted(appended)])
            appended += 1
            cancelled += sum(count for (count,) in other.execute(CANCEL))
            return bool(cancelled >= CANCELLED)

        def is_applied() -> bool:
            if kind is Seen:
                # What is in the outbox is taken out in the end, which may be cancelled as well.
                return len(Seen.seen) == appended and app.queue.list() == []
            found = other.execute("SELECT sum(total) FROM counted").fetchone()
            return found == (sum(range(appended)),)

        wait_until(cancel, WAIT_SECONDS, "statements to be cancelled")
        wait_until(is_applied, WAIT_SECONDS, "all events to be applied")
        assert running.faulted == {}
    assert app.queue.list() == []


def test_a_cancelled_statement_on_a_shared_connection_is_the_stores(
    emptied_postgres_url: str,
) -> None:
    database = PostgresDatabase(PostgresUrl(emptied_postgres_url))
    slow = "SET statement_timeout = 1; SELECT pg_sleep(60)"
    try:
        with pytest.raises(StoreUnavailable, match="cancelled"), database.reading() as connection:
            connection.script(slow)
        with pytest.raises(StoreUnavailable, match="cancelled"), database.reading() as connection:
            connection.raw.execute(slow)
    finally:
        database.close()


def test_errors_of_our_own_connections_show_no_secret_of_the_url() -> None:
    database = PostgresDatabase(PostgresUrl("postgresql://me:hunter2@127.0.0.1:1/bank"))
    cancelled = database.own_failure(psycopg.errors.QueryCanceled("no hunter2"))
    lost = database._lease_connection._lost(psycopg.OperationalError("no hunter2\n"))
    assert str(cancelled).endswith("a statement was cancelled: no ***")
    assert str(lost) == "the connection that holds the leases is lost: no ***"
