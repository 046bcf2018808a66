"""SqlProjections, on every database."""

from typing import ClassVar

from holdfast import App, Park, Policy, Poll, SqlProjection
from tests.contracts import SqlProjectionContract
from tests.contracts.failing import SOON, shown_items
from tests.contracts.samples import Counted, fetch
from tests.integration.databases import OnPostgres, OnSqliteFile, OnSqliteMemory


class TestOnSqliteFile(OnSqliteFile, SqlProjectionContract):
    pass


class TestOnSqliteMemory(OnSqliteMemory, SqlProjectionContract):
    pass


class TestOnPostgres(OnPostgres, SqlProjectionContract):
    def test_an_event_that_ends_the_connection_is_found(self, app: App) -> None:
        @app.projection(policy=Policy(on_error=Park()), poll=Poll(failure_backoff=SOON))
        class Lines(SqlProjection):
            tables: ClassVar = {"lines": "CREATE TABLE lines (n bigint)"}
            events = (Counted,)
            sql = """
                INSERT INTO lines SELECT CASE n
                    WHEN 11 THEN CAST(pg_terminate_backend(pg_backend_pid()) AS int) ELSE n
                END FROM batch ORDER BY position
            """

        self.append(app, 1, 2, 11, 12, 21)
        app.catch_up()
        assert fetch(app, "SELECT n FROM lines ORDER BY n") == [(1,), (2,), (12,)]
        assert [item[:3] for item in shown_items(app)] == [("dead", "1", 11), ("pending", "1", 21)]
