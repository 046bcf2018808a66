"""Messages for other systems: sent with a transaction, delivered by sinks through the queue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from holdfast.app import App
from holdfast.errors import AppendError, ConfigError, HoldfastError, PayloadError, ProjectionFaulted
from holdfast.model.event import Event, NewEvent
from holdfast.model.policy import Park, Policy
from holdfast.model.projection import Projection, Tx, on
from holdfast.runtime.store.queue_items import QueueSelection
from holdfast.sql.outbox.registration import register
from tests.contracts.samples import Counted, execute, fetch, status_of

PARKING = Policy(on_error=Park())


class MessageContract:
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    placeholder: ClassVar[str]

    @pytest.fixture
    def bad(self) -> set[int]:
        """The numbers at which the sink fails."""
        return set()

    @pytest.fixture
    def got(self, app: App, bad: set[int]) -> list[Event[Any]]:
        """What the sink `mails`, for the topic `mail`, has got."""
        got: list[Event[Any]] = []

        @app.sink(policy=PARKING)
        class Mails(Projection):
            @on("mail")
            def mail(self, event: Event[Any], tx: Tx) -> None:
                got.append(event)
                if event.data["n"] in bad:
                    raise ValueError("no such address")

        return got

    def send(self, app: App, key: str, *numbers: int) -> None:
        """Sends a mail of each number, under one key."""
        for n in numbers:
            app.outbox.send("mail", {"n": n}, key=key)

    def check_empty(self, app: App) -> None:
        """Nothing waits, and no lane is left behind."""
        assert fetch(app, "SELECT count(*) FROM holdfast_queue") == [(0,)]
        assert fetch(app, "SELECT count(*) FROM holdfast_lane") == [(0,)]

    @pytest.mark.parametrize("is_delivered", [False, True])
    def test_a_message_that_is_sent_again(
        self, app: App, got: list[Event[Any]], is_delivered: bool
    ) -> None:
        """It is the same message by its id and its topic, whether it still waits or not."""
        own = uuid4()
        assert app.outbox.send("mail", {"n": 1}, key="a", id=own) == own
        if is_delivered:
            app.catch_up()
        assert app.outbox.send("mail", {"n": 2}, key="b", id=own) == own
        with pytest.raises(AppendError, match="no sink takes topic"):
            app.outbox.send("other", {}, key="a", id=own)
        app.catch_up()
        assert [event.data["n"] for event in got] == [1]
        self.check_empty(app)
        execute(app, "UPDATE holdfast_sent SET sent_at = '2001-01-01T00:00:00.000000+00:00'")
        app.catch_up()
        app.outbox.send("mail", {"n": 3}, key="a", id=own)
        app.catch_up()
        assert [event.data["n"] for event in got] == [1, 3]

    def test_a_message_arrives_as_it_was_sent(self, app: App, got: list[Event[Any]]) -> None:
        own = uuid4()
        assert app.outbox.send("mail", {"n": 1}, key="a", id=own, metadata={"by": "me"}) == own
        app.catch_up()
        (event,) = got
        assert (event.id, event.type, event.stream, event.data) == (own, "mail", "a", {"n": 1})
        assert event.metadata == {"by": "me"}
        self.check_empty(app)
        assert not list(app.journal.read())

    def test_each_key_has_its_order(self, app: App, got: list[Event[Any]]) -> None:
        for n in range(20):
            self.send(app, "ab"[n % 2], n)
        app.catch_up()
        for key, first in (("a", 0), ("b", 1)):
            assert [e.data["n"] for e in got if e.stream == key] == [*range(first, 20, 2)]

    def test_every_sink_of_a_topic_gets_it(self, app: App, got: list[Event[Any]]) -> None:
        seen: list[tuple[str, Any]] = []

        @app.sink()
        class Log(Projection):
            @on("*")
            def all(self, event: Event[Any], tx: Tx) -> None:
                seen.append((event.type, event.id))

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                seen.append((event.type, event.data.n))

        sent = app.outbox.send("mail", {"n": 1}, key="a")
        other = app.outbox.send("other", {}, key="a")
        app.outbox.send("Counted", Counted(3), key="a")
        app.journal.append("a", [Counted(4)])
        app.catch_up()
        assert [event.id for event in got] == [sent]
        assert seen == [("mail", sent), ("other", other), ("Counted", 3)]
        self.check_empty(app)

    def test_a_topic_that_nobody_takes(self, app: App, got: list[Event[Any]]) -> None:
        with pytest.raises(AppendError, match="no sink takes topic 'letter'"):
            app.outbox.send("letter", {}, key="a")
        self.check_empty(app)

    def test_what_can_not_be_sent(self, app: App, got: list[Event[Any]]) -> None:
        app.migrate()
        with pytest.raises(PayloadError, match="registered as event type 'Counted'"):
            app.outbox.send("mail", Counted(1), key="a")
        with pytest.raises(PayloadError):
            app.outbox.send("mail", {"n": float("nan")}, key="a")
        with pytest.raises(AppendError, match="stream"):
            app.outbox.send("mail", {}, key="")
        self.check_empty(app)

    def test_a_handler_sends_in_its_transaction(self, app: App, got: list[Event[Any]]) -> None:
        """And not otherwise: what fails after it has sent, has not."""
        fails = [True]

        @app.projection(policy=PARKING)
        class Orders(Projection):
            @on("Ordered")
            def ordered(self, event: Event[Any], tx: Tx) -> None:
                app.outbox.send("mail", {"n": event.data["n"]}, key=event.stream, connection=tx)
                if fails.pop() if fails else False:
                    raise ValueError("not now")

            @on("Loose")
            def loose(self, event: Event[Any], tx: Tx) -> None:
                app.outbox.send("mail", {"n": 0}, key="a")

        app.journal.append("a", [NewEvent({"n": 1}, type="Ordered")])
        app.journal.append("b", [NewEvent({"n": 2}, type="Ordered")])
        app.journal.append("c", [NewEvent({}, type="Loose")])
        app.catch_up()
        app.catch_up()
        assert [event.data["n"] for event in got] == [2]
        (failed, loose) = app.queue.list()
        assert (loose.error_type, "connection=tx" in (loose.error_message or "")) == (
            "AppendError",
            True,
        )
        app.queue.requeue(QueueSelection(ids=(failed.id,)), by="me")
        app.catch_up()
        app.catch_up()
        assert [event.data["n"] for event in got] == [2, 1]

    def test_what_a_sink_writes_is_written_once(self, app: App) -> None:
        fails = [True]

        @app.sink(policy=PARKING)
        class Sent(Projection):
            tables: ClassVar = {"sent": "CREATE TABLE sent (n bigint)"}

            @on("mail")
            def mail(inner, event: Event[Any], tx: Tx) -> None:
                tx.execute(f"INSERT INTO sent VALUES ({self.placeholder})", (event.data["n"],))
                if fails and fails.pop():
                    raise ValueError("after it was written")

        self.send(app, "a", 1, 2)
        app.catch_up()
        assert fetch(app, "SELECT n FROM sent") == []
        app.queue.requeue(QueueSelection(), by="me")
        app.catch_up()
        assert fetch(app, "SELECT n FROM sent ORDER BY n") == [(1,), (2,)]

    def test_a_message_that_fails_closes_its_key_alone(
        self, app: App, got: list[Event[Any]], bad: set[int]
    ) -> None:
        bad.add(2)
        self.send(app, "a", 1, 2, 3)
        self.send(app, "b", 4)
        app.catch_up()
        assert sorted(event.data["n"] for event in got) == [1, 2, 4]
        assert [(i.lane, i.status) for i in app.queue.list()] == [("a", "dead"), ("a", "pending")]
        status = status_of(app, "mails")
        assert (status.feed, status.position, status.lag_events) == ("messages", 0, 0)
        assert (status.stuck_events, status.lag_seconds) == (2, 0.0)
        bad.clear()
        app.queue.requeue(QueueSelection(lane="a", status="dead"), by="me")
        app.catch_up()
        assert [event.data["n"] for event in got if event.stream == "a"] == [1, 2, 2, 3]
        self.check_empty(app)
        (reason,) = [r for r in app.explain("mails") if r.kind == "nothing_to_do"]
        assert reason.text == "every message is delivered"

    def test_what_needs_a_journal_is_refused(self, app: App, got: list[Event[Any]]) -> None:
        self.send(app, "a", 1)
        with pytest.raises(ConfigError, match="'mails' is a sink, which can't be reset"):
            app.reset("mails")
        with pytest.raises(ConfigError, match="be waited for"):
            app.wait_for("mails", 1)
        with pytest.raises(ConfigError, match="be rewound"):
            app.rewind("mails", by="me")
        assert len(app.queue.list()) == 1

    def test_pause_and_modes(self, app: App, got: list[Event[Any]]) -> None:
        self.send(app, "a", 1)
        app.outbox.set_mode("mails", "off", by="me")
        app.catch_up()
        app.outbox.set_mode("mails", "live", by="me")
        app.pause("mails", by="me")
        with pytest.raises(HoldfastError, match="paused by me"):
            app.catch_up()
        assert not got
        app.resume("mails", by="me")
        app.catch_up()
        assert len(got) == 1

    def test_a_message_is_replayed(self, app: App, got: list[Event[Any]], bad: set[int]) -> None:
        bad.add(1)
        self.send(app, "a", 1, 2)
        app.catch_up()
        first, second = app.queue.list()
        with pytest.raises(ConfigError, match=f"waits behind item {first.id}"):
            app.outbox.replay(second.id, by="me")
        failed = app.outbox.replay(first.id, by="me")
        assert failed is not None
        assert (failed.status, failed.error_message) == ("dead", "no such address")
        bad.clear()
        assert app.outbox.replay(first.id, by="me") is None
        assert [item.id for item in app.queue.list()] == [second.id]
        assert [row.action for row in app.audit()] == ["replay"] * 2
        app.catch_up()
        assert [event.data["n"] for event in got] == [1, 1, 1, 2]

    def test_what_reads_its_feed_is_not_replayed(self, app: App) -> None:
        @app.projection(policy=PARKING)
        class Fails(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                raise ValueError("never")

        app.journal.append("a", [Counted(1)])
        app.catch_up()
        (item,) = app.queue.list()
        with pytest.raises(ConfigError, match="reads its feed"):
            app.outbox.replay(item.id, by="me")
        assert [i.status for i in app.queue.list()] == ["dead"]

    def test_what_is_done_is_kept_for_a_time(self, app: App) -> None:
        @app.sink(keep_seconds=3600)
        class Kept(Projection):
            @on("mail")
            def mail(self, event: Event[Any], tx: Tx) -> None: ...

        self.send(app, "a", 1, 2, 3)
        app.catch_up()
        assert [item.status for item in app.queue.list()] == ["done"] * 3
        assert status_of(app, "kept").lag_events == 0
        execute(app, "UPDATE holdfast_queue SET updated_at = '2020-01-01T00:00:00+00:00'")
        self.send(app, "a", 4)
        app.catch_up()
        assert [item.data for item in app.queue.list()] == ['{"n":4}']
        assert app.queue.purge(QueueSelection(status="done"), by="me").items
        self.check_empty(app)

    def test_processes_that_are_gone_are_counted(self, app: App, got: list[Event[Any]]) -> None:
        self.send(app, "a", 1, 2)
        app.catch_up()
        execute(app, "UPDATE holdfast_relay SET seen_at = '2020-01-01T00:00:00+00:00'")
        self.send(app, "a", 3)
        app.catch_up()
        (report,) = app.outbox.report()
        assert (report.applied, [relay.applied for relay in report.relays]) == (3, [1])
        assert status_of(app, "mails").events_processed == 3

    def test_a_sink_is_forgotten(self, app: App, got: list[Event[Any]]) -> None:
        self.send(app, "a", 1, 2)
        assert app.outbox.forget("mails", by="me") == 2
        with pytest.raises(AppendError, match="no sink takes topic"):
            self.send(app, "a", 3)
        self.check_empty(app)
        assert not app.outbox.report()
        with pytest.raises(ConfigError, match="not delivered by an outbox"):
            app.outbox.forget("mails", by="me")
        assert [row.action for row in app.audit()] == ["forget"]

    def test_what_a_sink_has_no_handler_for_fails(self, app: App, got: list[Event[Any]]) -> None:
        """Its code is older than that of another process, or no longer takes the topic."""
        app.migrate()
        (definition,) = app._catalog
        newer = replace(definition, handlers={**definition.handlers, "new": lambda *_: None})
        register(app._database, newer)
        app.outbox.send("new", {}, key="a")
        app.catch_up()
        (item,) = app.queue.list()
        assert (item.status, item.error_type) == ("dead", "ConfigError")
        assert "has no handler for event type 'new'" in str(item.error_message)

    def test_a_handler_that_ends_the_transaction(self, app: App) -> None:
        """It can't be reset, so a message is tried again when the handler is mended."""
        ends = [True]

        @app.sink(policy=PARKING)
        class Sent(Projection):
            tables: ClassVar = {"sent": "CREATE TABLE sent (n bigint)"}

            @on("mail")
            def mail(inner, event: Event[Any], tx: Tx) -> None:
                tx.execute(f"INSERT INTO sent VALUES ({self.placeholder})", (event.data["n"],))
                if ends:
                    tx.execute("COMMIT")

        self.send(app, "a", 1)
        with suppress(ProjectionFaulted):
            app.catch_up()
        ends.clear()
        # Somebody was at it who has not come back.
        execute(app, "UPDATE holdfast_lane SET due_at = '2020-01-01T00:00:00+00:00'")
        app.catch_up()
        app.queue.requeue(QueueSelection(), by="me")
        app.catch_up()
        self.check_empty(app)

    def test_a_transaction_of_ones_own_first(self, app: App) -> None:
        """A process whose first act is to join a transaction registers its sinks later."""
        got: list[int] = []
        app.migrate()
        app._prepared = app._migrated = False

        @app.sink()
        class Mails(Projection):
            @on("mail")
            def mail(self, event: Event[Any], tx: Tx) -> None:
                got.append(event.data["n"])

        app._check_prepared()
        self.send(app, "a", 1)
        app.catch_up()
        assert got == [1]
