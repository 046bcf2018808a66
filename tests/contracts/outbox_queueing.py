"""Events come into the queue with their append, or by the backfill."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.event import Event
from holdfast.model.policy import Park, Policy
from holdfast.model.poll import Poll
from holdfast.model.projection import TableProjection, on
from tests.contracts.outbox_samples import ALL, Other, OutboxSample, Same, Seen
from tests.contracts.samples import Counted, eventually, fetch, status_of


class QueueingContract(OutboxSample):
    """Events come into the queue with their append, or by the backfill."""

    def test_an_append_puts_what_is_handled_into_the_queue(
        self, app: App, register: Callable[..., None]
    ) -> None:
        register()
        app.journal.append("a", [Counted(1), Other(2), Counted(3)])
        items = app.queue.list()
        assert [(item.projection, item.lane, item.position) for item in items] == [
            ("sums", "a", 1),
            ("sums", "a", 3),
        ]
        assert items[0].data == '{"n":1}'
        assert items[0].status == "pending"
        app.catch_up()
        assert self.seen(app) == {"a": [1, 3]}
        self.check_empty(app)

    def test_writers_need_no_code(self, app: App, register: Callable[..., None]) -> None:
        """Registration is in the database: whoever appends there fills the queue."""
        register()
        app.catch_up()
        with App(str(app.url), clock=app._clock) if self.is_shared else Same(app) as writer:
            writer.journal.append("a", [Counted(1)])
        assert len(app.queue.list()) == 1

    is_shared: ClassVar[bool] = True
    """Whether another App reaches the same database by its URL."""

    @pytest.mark.parametrize(("start", "expected"), [("start", [1, 2, 3]), ("now", [3])])
    def test_a_journal_that_has_events(
        self, app: App, register: Callable[..., None], start: str, expected: list[int]
    ) -> None:
        app.journal.append("a", [Counted(1), Counted(2)])
        register(start=start)
        app.journal.append("a", [Counted(3)])
        app.catch_up()
        assert self.seen(app) == {"a": expected}
        self.check_empty(app)

    def test_a_backfill_comes_in_stretches(
        self, app: App, register: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.sql.outbox.claims.BACKFILL_EVENTS", 7)
        for n in range(100):
            app.journal.append(str(n % 10), [Counted(n)])
        register()
        app.catch_up()
        assert self.seen(app) == {str(n): list(range(n, 100, 10)) for n in range(10)}
        self.check_empty(app)

    def test_many_lanes(self, app: App, register: Callable[..., None]) -> None:
        register(concurrency=4)
        for n in range(300):
            app.journal.append(str(n % 30), [Counted(n)])
        app.catch_up()
        assert self.seen(app) == {str(n): list(range(n, 300, 30)) for n in range(30)}
        self.check_empty(app)
        assert status_of(app, "sums").lag_events == 0

    def test_it_builds_what_log_delivery_builds(self, app: App) -> None:
        @app.projection(name="by_log")
        class ByLog(TableProjection[Seen]):
            @on(Counted)
            def counted(self, row: Seen, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"

        @app.projection(name="by_outbox", delivery="outbox")
        class ByOutbox(ByLog):
            pass

        for n in range(50):
            app.journal.append(str(n % 5), [Counted(n)])
        app.catch_up()
        sql = "SELECT stream, seen FROM {} ORDER BY stream"
        rows = fetch(app, sql.format("by_outbox"))
        assert rows == fetch(app, sql.format("by_log"))
        app.reset("by_outbox")
        assert fetch(app, sql.format("by_outbox")) == []
        app.catch_up()
        assert fetch(app, sql.format("by_outbox")) == rows

    def test_from_log_to_outbox_and_back(self, app: App) -> None:
        """It goes on where it was, with what was parked; back it goes by a reset."""
        bad = {2}

        class Sums(TableProjection[Seen]):
            @on(Counted)
            def counted(self, row: Seen, event: Event[Counted]) -> None:
                if event.data.n in bad:
                    raise ValueError("no")
                row.seen += f" {event.data.n}"

        parking = Policy(on_error=Park())
        app.projection(name="sums", policy=parking)(Sums)
        app.journal.append("a", [Counted(n) for n in (1, 2, 3)])
        app.journal.append("b", [Counted(4)])
        app.catch_up()
        assert self.seen(app) == {"a": [1], "b": [4]}
        log = app._catalog._definitions.pop("sums")
        app.journal.append("b", [Counted(5)])
        app.projection(name="sums", policy=parking, delivery="outbox")(Sums)
        app.journal.append("a", [Counted(6)])
        app.catch_up()
        assert self.seen(app) == {"a": [1], "b": [4, 5]}
        bad.clear()
        app.queue.requeue(ALL, by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2, 3, 6], "b": [4, 5]}
        self.check_empty(app)

        app._catalog._definitions["sums"] = log
        with pytest.raises(ProjectionFaulted, match="is delivered by an outbox on this database"):
            app.catch_up()
        app.reset("sums")
        app.journal.append("b", [Counted(7)])
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2, 3, 6], "b": [4, 5, 7]}
        self.check_empty(app)

    def test_what_one_hand_leaves_is_taken_at_once(
        self, app: App, register: Callable[..., None]
    ) -> None:
        """Though another one waits for news, of which there is none."""
        register(concurrency=4, poll=Poll(empty_backoff_seconds=3600.0))
        for _ in range(10):
            app.journal.append("a", [Counted(n) for n in range(10)])
        with app.running():
            eventually(lambda: not app.queue.list())
        assert self.seen(app) == {"a": [*range(10)] * 10}
