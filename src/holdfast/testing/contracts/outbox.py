"""Outbox delivery: append and apply, coupled by the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.core.backoff import Backoff
from holdfast.core.errors import ConfigError, ProjectionFaulted
from holdfast.core.event import Event
from holdfast.core.policy import Fatal, Park, Policy, Retry, Skip
from holdfast.core.projection import Projection, TableProjection, Tx, on
from holdfast.core.queue import QueueSelection
from holdfast.sql import outbox
from holdfast.testing.contracts.samples import Counted, eventually, execute, fetch, status_of

ALL = QueueSelection()
AT_ONCE = Backoff(max_attempts=3, delay_seconds=0.001, max_delay_seconds=0.001, jitter=0.0)


@dataclass
class Other:
    n: int


@dataclass
class Seen:
    """What was applied to a stream, in order."""

    stream: str
    seen: str = ""


SUMS = "CREATE TABLE sums (stream text, seen text, place bigint)"


def note(tx: Tx, event: Event[Counted], mark: str) -> None:
    """A row an event, with its place among those of its stream that are there."""
    tx.execute(
        f"INSERT INTO sums SELECT {mark}, {mark}, count(*) FROM sums WHERE stream = {mark}",
        (event.stream, f" {event.data.n}", event.stream),
    )


class OutboxContract:
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    placeholder: ClassVar[str]

    @pytest.fixture
    def bad(self) -> set[int]:
        """The numbers at which handlers fail."""
        return set()

    @pytest.fixture(params=["table", "handler"])
    def register(
        self, app: App, bad: set[int], request: pytest.FixtureRequest
    ) -> Callable[..., None]:
        """Registers the projection `sums` of a kind, delivered by the queue."""
        mark = self.placeholder

        def check(n: int) -> None:
            if n in bad:
                raise ValueError(f"no {n}, please")

        def register(**settings: Any) -> None:
            if request.param == "table":

                @app.projection(name="sums", delivery="outbox", **settings)
                class Sums(TableProjection[Seen]):
                    @on(Counted)
                    def counted(self, row: Seen, event: Event[Counted]) -> None:
                        row.seen += f" {event.data.n}"
                        check(event.data.n)
            else:

                @app.projection(name="sums", delivery="outbox", **settings)
                class BySql(Projection):
                    tables: ClassVar = {"sums": SUMS}

                    @on(Counted)
                    def counted(self, event: Event[Counted], tx: Tx) -> None:
                        note(tx, event, mark)
                        check(event.data.n)

        return register

    def seen(self, app: App) -> dict[str, list[int]]:
        """The numbers that were applied to each stream, in order."""
        found: dict[str, list[int]] = {}
        rows = fetch(
            app, "SELECT * FROM sums"
        )  # The third column is a place, or the last position.
        for stream, text, _ in sorted(rows, key=lambda row: row[2]):
            found.setdefault(stream, []).extend(int(n) for n in text.split())
        return found

    def check_empty(self, app: App) -> None:
        """Nothing waits, and no lane is left behind."""
        assert fetch(app, "SELECT count(*) FROM holdfast_queue") == [(0,)]
        assert fetch(app, "SELECT count(*) FROM holdfast_lane") == [(0,)]

    def items(self, app: App) -> list[tuple[str, str, int]]:
        """Lane, status and attempts of what is in the queue."""
        return [(item.lane, item.status, item.attempts) for item in app.queue.list()]

    # Appending

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
        with App(str(app.url), clock=app._clock) if self.is_shared else _Same(app) as writer:
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
        monkeypatch.setattr("holdfast.sql.outbox.BACKFILL_EVENTS", 7)
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

    # Inline

    def test_an_append_that_applies(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(inline_seconds=30.0, policy=Policy(on_error=Park()))
        app.catch_up()
        assert app.journal.append("a", [Counted(1), Other(2), Counted(3)]).applied == {"sums"}
        assert self.seen(app) == {"a": [1, 3]}
        self.check_empty(app)
        assert app.journal.append("b", [Other(4)]).applied == frozenset()
        bad.add(5)
        assert app.journal.append("a", [Counted(5)]).applied == frozenset()
        assert self.items(app) == [("a", "dead", 1)]
        # Something waits there: it is not passed.
        assert app.journal.append("a", [Counted(6)]).applied == frozenset()
        assert app.journal.append("c", [Counted(7)]).applied == {"sums"}
        bad.clear()
        app.queue.requeue(ALL, by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [1, 3, 5, 6], "c": [7]}
        self.check_empty(app)

    def test_an_append_waits_no_longer_than_it_may(self, app: App) -> None:
        go_on = threading.Event()
        mark = self.placeholder

        @app.projection(name="sums", delivery="outbox", inline_seconds=0.01)
        class BySql(Projection):
            tables: ClassVar = {"sums": SUMS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                assert go_on.wait(30)
                note(tx, event, mark)

        app.catch_up()
        assert app.journal.append("a", [Counted(1)]).applied == frozenset()
        assert self.seen(app) == {}
        go_on.set()
        eventually(lambda: self.seen(app) == {"a": [1]})
        eventually(lambda: not app.queue.list())

    def test_many_appends_that_apply(self, app: App, register: Callable[..., None]) -> None:
        """With relays beside them: each event is applied once, in the order of its stream."""
        register(inline_seconds=30.0)
        with app.running():

            def append(number: int) -> None:
                for n in range(number, 200, 8):
                    app.journal.append(str(n % 4), [Counted(n)])

            threads = [threading.Thread(target=append, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            eventually(lambda: not app.queue.list())
        expected: dict[str, list[int]] = {}
        for event in app.journal.read():
            expected.setdefault(event.stream, []).append(event.data.n)
        assert self.seen(app) == expected
        self.check_empty(app)

    # Changing one's mind

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
        log = app._definitions.pop("sums")
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

        app._definitions["sums"] = log
        with pytest.raises(ProjectionFaulted, match="is delivered by an outbox on this database"):
            app.catch_up()
        app.reset("sums")
        app.journal.append("b", [Counted(7)])
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2, 3, 6], "b": [4, 5, 7]}
        self.check_empty(app)

    def test_what_can_not_be_done_to_it(self, app: App, register: Callable[..., None]) -> None:
        register()
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        with pytest.raises(ConfigError, match="its events come from the queue"):
            app.rewind("sums", to=0, by="me")
        with pytest.raises(ConfigError, match="its events are in the queue already"):
            app.queue.add("sums", 1, by="me")

    # Failing

    def test_a_head_that_fails_closes_its_lane_alone(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Park()))
        bad.add(1)
        for n in range(30):
            app.journal.append(str(n % 10), [Counted(n)])
        app.catch_up()
        rest = {str(n): list(range(n, 30, 10)) for n in range(10)}
        assert self.seen(app) == {s: numbers for s, numbers in rest.items() if s != "1"}
        assert self.items(app) == [("1", "dead", 1), ("1", "pending", 0), ("1", "pending", 0)]
        assert status_of(app, "sums").closed_lanes == 1
        bad.clear()
        app.queue.requeue(ALL, by="me")
        app.catch_up()
        assert self.seen(app) == rest
        self.check_empty(app)

    def test_attempts_are_counted_and_end(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Retry(), backoff=AT_ONCE, exhausted=Park()))
        bad.add(1)
        app.journal.append("a", [Counted(1), Counted(2)])
        with app.running():
            eventually(lambda: self.items(app) == [("a", "dead", 3), ("a", "pending", 0)])
        item = app.queue.list()[0]
        assert [attempt.error_type for attempt in item.history] == ["ValueError"] * 3
        assert app.queue.list(QueueSelection(lane="a", version=1)) == [item]
        bad.clear()
        app.queue.resolve(QueueSelection(lane="a", version=1), by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [2]}

    def test_eight_attempts_by_default(self, app: App, register: Callable[..., None]) -> None:
        register()
        (definition,) = app._definitions.values()
        backoff = definition.policy.backoff
        assert (backoff.max_attempts, backoff.delay_seconds) == (8, 1.0)
        assert (backoff.multiplier, backoff.max_delay_seconds) == (2.0, 300.0)
        assert definition.policy.exhausted == Park()

    def test_skip_leaves_a_row_and_goes_on(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Skip()))
        bad.add(2)
        app.journal.append("a", [Counted(1), Counted(2), Counted(3)])
        app.catch_up()
        assert self.seen(app) == {"a": [1, 3]}
        assert self.items(app) == [("a", "skipped", 1)]
        assert status_of(app, "sums").closed_lanes == 0

    def test_fatal_stops_the_projection(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Fatal()))
        bad.add(1)
        app.journal.append("a", [Counted(1), Counted(2)])
        with pytest.raises(ProjectionFaulted, match="no 1, please"):
            app.catch_up()
        assert status_of(app, "sums").state == "faulted"
        bad.clear()
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2]}
        assert status_of(app, "sums").state != "faulted"
        self.check_empty(app)

    # People

    def test_a_pause_takes_the_work_out_of_hands(self, app: App) -> None:
        """When it has returned, nothing more is committed; and no attempt is lost by it."""
        inside, go_on = threading.Event(), threading.Event()
        mark = self.placeholder

        @app.projection(name="sums", delivery="outbox")
        class BySql(Projection):
            tables: ClassVar = {"sums": SUMS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                inside.set()
                assert go_on.wait(30)
                note(tx, event, mark)

        app.journal.append("a", [Counted(1)])
        with app.running():
            assert inside.wait(30)
            assert self.items(app) == [("a", "processing", 1)]
            app.pause("sums", by="me")
            inside.clear()
            go_on.set()
            assert self.items(app) == [("a", "pending", 0)]
            assert self.seen(app) == {}
            app.resume("sums", by="me")
            eventually(lambda: self.seen(app) == {"a": [1]})
        self.check_empty(app)

    def test_catching_up_waits_for_nobody_who_does_not_work(
        self, app: App, register: Callable[..., None]
    ) -> None:
        register()
        app.catch_up()
        app.pause("sums", by="me")
        app.journal.append("a", [Counted(1)])
        with pytest.raises(ProjectionFaulted, match="it is paused by me"):
            app.catch_up()
        assert status_of(app, "sums").state == "paused"
        app.resume("sums", by="me")
        app.outbox.set_mode("sums", "off", by="me")
        app.catch_up()
        assert self.seen(app) == {}
        app.outbox.set_mode("sums", "live", by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [1]}

    def test_a_claim_that_somebody_else_has_can_not_be_finished(self, app: App) -> None:
        """A worker that was taken for dead wakes up, and changes nothing."""
        inside, go_on = threading.Event(), threading.Event()
        tries: list[int] = []
        mark = self.placeholder

        @app.projection(name="sums", delivery="outbox")
        class BySql(Projection):
            tables: ClassVar = {"sums": SUMS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tries.append(event.data.n)
                if len(tries) == 1:
                    inside.set()
                    assert go_on.wait(30)
                note(tx, event, mark)

        app.journal.append("a", [Counted(1)])
        with app.running():
            assert inside.wait(30)
            # Its lease is over, and somebody else has the lane.
            execute(app, "UPDATE holdfast_lane SET token = 'another'")
            go_on.set()
            eventually(lambda: len(tries) == 1)
        assert self.seen(app) == {}
        assert self.items(app) == [("a", "processing", 1)]

    def test_a_worker_that_does_not_come_back_counts_as_a_failure(
        self, app: App, register: Callable[..., None]
    ) -> None:
        register(policy=Policy(on_error=Retry(), backoff=AT_ONCE, exhausted=Park()))
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        app.journal.append("a", [Counted(2)])
        execute(app, "UPDATE holdfast_queue SET status = 'processing', attempts = 3")
        execute(app, "UPDATE holdfast_lane SET token = 'gone'")
        app.catch_up()
        (item,) = app.queue.list()
        assert (item.status, item.attempts, item.error_type) == ("dead", 3, "WorkerLost")
        assert self.seen(app) == {"a": [1]}

    def test_resolving_what_is_at_work(self, app: App, register: Callable[..., None]) -> None:
        register(mode="off")
        app.journal.append("a", [Counted(1), Counted(2)])
        execute(app, "UPDATE holdfast_queue SET status = 'processing', attempts = 1 WHERE id = 1")
        execute(app, "UPDATE holdfast_lane SET token = 'somebody'")
        app.queue.resolve(QueueSelection(ids=(1,)), by="me")
        assert fetch(app, "SELECT events, token FROM holdfast_lane") == [(1, None)]

    # Settings

    def test_off_fills_the_queue_and_nobody_works(
        self, app: App, register: Callable[..., None]
    ) -> None:
        register(mode="off")
        app.journal.append("a", [Counted(1)])
        with app.running():
            eventually(lambda: status_of(app, "sums").state == "running")
        assert self.items(app) == [("a", "pending", 0)]
        assert status_of(app, "sums").mode == "off"

    def test_shadow_only_looks(self, app: App, register: Callable[..., None]) -> None:
        register(mode="shadow")
        app.journal.append("a", [Counted(1), Counted(2)])
        execute(app, """UPDATE holdfast_event SET data = '{"n": "many"}' WHERE position = 2""")
        before = [app.queue.get(item.id) for item in app.queue.list()]
        with app.running():
            eventually(lambda: [r.relays[0].looked for r in app.outbox.report() if r.relays] == [2])
        (report,) = app.outbox.report()
        (relay,) = report.relays
        assert (relay.looked, relay.unreadable, relay.applied) == (2, 1, 0)
        assert [app.queue.get(item.id) for item in app.queue.list()] == before
        assert self.seen(app) == {}
        assert app.outbox.set_mode("sums", "live", by="me", note="it can read them")
        app.catch_up()
        assert self.seen(app) == {"a": [1]}
        assert [row.action for row in app.audit()] == ["mode"]

    def test_live_and_shadow_at_once_are_refused(
        self, app: App, register: Callable[..., None]
    ) -> None:
        register()
        app.catch_up()
        (definition,) = app._definitions.values()
        assert definition.outbox is not None
        shadow = replace(definition, outbox=replace(definition.outbox, mode="shadow"))
        with pytest.raises(ConfigError, match="is live in the database"):
            outbox.register(app._database, shadow, "journal")

    def test_the_report(self, app: App, bad: set[int], register: Callable[..., None]) -> None:
        register(policy=Policy(on_error=Park()))
        bad.add(2)
        app.journal.append("a", [Counted(1), Counted(2), Counted(3)])
        app.catch_up()
        (report,) = app.outbox.report()
        assert (report.projection, report.mode, report.backfill_left) == ("sums", "live", 0)
        assert report.depth == {"pending": 1, "processing": 0, "failed": 0, "dead": 1}
        assert (report.applied, report.failed) == (1, 1)
        assert [item.error_message for item in report.items] == ["no 2, please"]
        (pending,) = app.outbox.report(status="pending")
        assert [item.position for item in pending.items] == [3]
        with pytest.raises(ConfigError, match="is not delivered by an outbox"):
            app.outbox.set_mode("nobody", "off", by="me")

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"delivery": "post"}, "delivery is 'post'"),
            ({"delivery": "outbox", "concurrency": 0}, "concurrency is 0"),
            ({"delivery": "outbox", "mode": "dark"}, "mode is 'dark'"),
            ({"delivery": "outbox", "start": "soon"}, "start is 'soon'"),
            ({"delivery": "outbox", "inline_seconds": 0}, "inline_seconds is 0"),
        ],
    )
    def test_settings_are_checked(self, app: App, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            app.projection(**settings)

    def test_lanes_of_its_own_are_refused(self, app: App) -> None:
        with pytest.raises(ConfigError, match="keeps the order of streams"):

            @app.projection(delivery="outbox")
            class Sums(TableProjection[Seen]):
                def key(self, event: Event[Any]) -> str:
                    return str(event.data.n)

                @on(Counted)
                def counted(self, row: Seen, event: Event[Counted]) -> None:
                    pass


class _Same:
    """The same app, where nobody else can reach its database."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __enter__(self) -> App:
        return self._app

    def __exit__(self, *exc: object) -> None:
        pass
