"""What people do to outbox projections: pauses, modes, commands and settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.errors import ConfigError, HoldfastError, ProjectionFaulted
from holdfast.model.backoff import Backoff
from holdfast.model.definition import Log, Mode
from holdfast.model.event import Event
from holdfast.model.policy import Decision, Park, Policy, Retry
from holdfast.model.projection import Projection, TableProjection, Tx, on
from holdfast.runtime.store.queue_items import QueueSelection
from holdfast.sql.outbox.registration import register as register_outbox
from tests.contracts.outbox_samples import AT_ONCE, SUMS, Other, OutboxSample, Seen, note
from tests.contracts.samples import Counted, eventually, execute, fetch, status_of

LATER = Backoff(delay_seconds=99.0, max_delay_seconds=99.0)
RESTING = ("failed", "dead")
"""The statuses of an item that nobody is trying."""


class OutboxOperatorsContract(OutboxSample):
    """What people do to outbox projections: pauses, modes, commands and settings."""

    def test_what_can_not_be_done_to_it(self, app: App, register: Callable[..., None]) -> None:
        register()
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        with pytest.raises(ConfigError, match="its events come from the queue"):
            app.rewind("sums", to=0, by="me")
        with pytest.raises(HoldfastError, match="no event at position 1 in its queue"):
            app.queue.add("sums", 1, by="me")

    def test_an_event_that_is_known_to_be_bad_is_parked(
        self, app: App, register: Callable[..., None]
    ) -> None:
        """Wherever it waits: its lane goes on up to it."""
        register(mode="off")
        app.journal.append("a", [Counted(1), Counted(2), Counted(3)])
        app.catch_up()
        error = ValueError("the sensor was broken")
        item = app.queue.add("sums", 2, by="me", error=error, note="do not bill it")
        assert (item.error_type, item.error_message) == ("ValueError", "the sensor was broken")
        assert (item.status, item.attempts, item.note) == ("dead", 0, "do not bill it")
        app.outbox.set_mode("sums", "live", by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [1]}
        assert self.items(app) == [("a", "dead", 0), ("a", "pending", 0)]
        app.queue.resolve(QueueSelection(ids=(item.id,)), by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [1, 3]}
        assert [row.action for row in app.audit()] == ["resolve", "mode", "add"]

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

    def test_resolving_what_is_at_work(self, app: App, register: Callable[..., None]) -> None:
        register(mode="off")
        app.journal.append("a", [Counted(1), Counted(2)])
        execute(app, "UPDATE holdfast_queue SET status = 'processing', attempts = 1 WHERE id = 1")
        execute(app, "UPDATE holdfast_lane SET token = 'somebody'")
        app.queue.resolve(QueueSelection(ids=(1,)), by="me")
        assert fetch(app, "SELECT events, token FROM holdfast_lane") == [(1, None)]

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
        assert relay.looked_seconds > 0
        assert [app.queue.get(item.id) for item in app.queue.list()] == before
        assert self.seen(app) == {}
        assert app.outbox.set_mode("sums", "live", by="me", note="it can read them")
        app.catch_up()
        assert self.seen(app) == {"a": [1]}
        assert [row.action for row in app.audit()] == ["mode"]

    @pytest.mark.parametrize(("code", "now"), [("shadow", "live"), ("live", "off")])
    def test_the_databases_mode_holds(
        self, app: App, register: Callable[..., None], code: Mode, now: Mode
    ) -> None:
        """A restart with the same code changes nothing that an operator has set."""
        register(mode=code)
        app.migrate()
        app.outbox.set_mode("sums", now, by="me")
        app._prepared = False  # As after a restart.
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        assert status_of(app, "sums").mode == now
        assert len(app.queue.list()) == (0 if now == "live" else 1)
        assert app.outbox.set_mode("sums", "shadow", by="me")

    def test_the_report(self, app: App, bad: set[int], register: Callable[..., None]) -> None:
        register(policy=Policy(on_error=Park()))
        bad.add(2)
        app.journal.append("a", [Counted(1), Counted(2), Counted(3)])
        app.catch_up()
        (report,) = app.outbox.report()
        assert (report.projection, report.mode, report.backfill_left) == ("sums", "live", 0)
        assert {status: n for status, n in report.depth.items() if n} == {"pending": 1, "dead": 1}
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
            ({"mode": "off"}, "mode= is for delivery='outbox'"),
            ({"shard": 2}, "there is no setting 'shard'; the settings are name"),
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

    @pytest.mark.parametrize("inline", [None, 30.0])
    def test_a_handler_that_would_wait_for_itself(self, app: App, inline: float | None) -> None:
        refused: list[str] = []

        def attempt(what: Callable[[], object]) -> None:
            try:
                what()
            except HoldfastError as error:
                refused.append(str(error))

        @app.projection(delivery="outbox", inline_seconds=inline)
        class Waits(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                attempt(lambda: app.wait_for("waits", event.position))
                attempt(app.catch_up)
                attempt(lambda: app.reset("waits"))
                if inline is None:
                    tx.after_commit(lambda: attempt(app.catch_up))

        app.journal.append("a", [Counted(1)])
        app.catch_up()
        assert len(refused) == (4 if inline is None else 3)
        assert all("from inside a handler" in text for text in refused)
        assert not app.queue.list()

    def test_forgotten_and_registered_again(self, app: App, register: Callable[..., None]) -> None:
        """What was applied is not applied again, in whatever way it is delivered then."""
        register()
        app.journal.append("a", [Counted(1), Counted(2)])
        app.catch_up()
        app.journal.append("a", [Counted(3)])
        assert app.outbox.forget("sums", by="me") == 1
        app.journal.append("a", [Counted(4)])
        app._prepared = False
        app.journal.append("a", [Counted(5)])
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2, 4, 5]}
        app.outbox.forget("sums", by="me")
        definition = app._catalog._definitions["sums"]
        app._catalog._definitions["sums"] = replace(definition, delivery=Log())
        app.journal.append("a", [Counted(6)])
        app.catch_up()
        assert self.seen(app) == {"a": [1, 2, 4, 5, 6]}

    def test_older_code_takes_no_event_types_away(
        self, app: App, register: Callable[..., None]
    ) -> None:
        register()
        app.catch_up()
        (definition,) = app._catalog
        older = replace(definition, handlers={"Other": definition.handlers["Counted"]})
        register_outbox(app._database, older)
        app.journal.append("a", [Counted(1), Other(2)])
        assert [item.event_type for item in app.queue.list()] == ["Counted", "Other"]
        app.catch_up()
        assert self.seen(app) == {"a": [1]}
        self.check_empty(app)
        app.reset("sums")
        app.journal.append("a", [Counted(3), Other(4)])
        assert [item.event_type for item in app.queue.list()] == ["Counted"]

    def test_one_name_is_one_thing(self, app: App, register: Callable[..., None]) -> None:
        register()
        app.catch_up()
        (definition,) = app._catalog
        with pytest.raises(ConfigError, match="is known to this database as a projection"):
            register_outbox(app._database, replace(definition, feed="messages"))

    def test_migrating_registers(self, app: App, register: Callable[..., None]) -> None:
        register()
        app.migrate()
        assert [report.projection for report in app.outbox.report()] == ["sums"]

    @pytest.mark.parametrize("on_error", [Park(), Retry(LATER)])
    def test_a_replay_beside_workers(self, app: App, on_error: Decision) -> None:
        """The process that is asked makes one attempt, and no worker makes another."""
        tried: list[str] = []
        is_bad = True

        @app.projection(delivery="outbox", policy=Policy(on_error=on_error))
        class Calls(Projection):
            calls_out = True

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tried.append(threading.current_thread().name)
                if is_bad:
                    raise ValueError("not yet")

        app.journal.append("a", [Counted(1)])
        me = threading.current_thread().name
        with app.running():
            eventually(lambda: [item.status in RESTING for item in app.queue.list()] == [True])
            (item,) = app.queue.list()
            failed = app.outbox.replay(item.id, by="me")
            assert failed is not None
            assert (failed.status, failed.attempts) == (item.status, 2)
            app._database.announce()
            is_bad = False
            assert app.outbox.replay(item.id, by="me", note="it is up again") is None
        assert tried[1:] == [me, me]
        assert [row.action for row in app.audit()] == ["replay", "replay"]
        self.check_empty(app)

    def test_an_item_that_is_tried_again_is_shown_as_retrying(self, app: App) -> None:
        inside, go_on = threading.Event(), threading.Event()

        @app.projection(delivery="outbox", policy=Policy(on_error=Retry(), backoff=AT_ONCE))
        class Calls(Projection):
            calls_out = True

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if not inside.is_set():
                    inside.set()
                    raise ValueError("not yet")
                assert go_on.wait(30)

        app.journal.append("a", [Counted(1)])
        with app.running():
            retrying = QueueSelection(status="retrying")
            eventually(lambda: len(app.queue.list(retrying)) == 1)
            assert not app.queue.list(QueueSelection(status="processing"))
            assert [(count.status, count.items) for count in app.queue.stats()] == [("retrying", 1)]
            assert app.outbox.report()[0].depth["retrying"] == 1
            go_on.set()
            eventually(lambda: not app.queue.list())

    def test_what_a_worker_tries_is_not_replayed(self, app: App) -> None:
        inside, go_on = threading.Event(), threading.Event()

        @app.projection(delivery="outbox")
        class Calls(Projection):
            calls_out = True

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                inside.set()
                assert go_on.wait(30)

        app.journal.append("a", [Counted(1)])
        with app.running():
            assert inside.wait(30)
            (item,) = app.queue.list()
            with pytest.raises(HoldfastError, match="a worker tries it"):
                app.outbox.replay(item.id, by="me")
            go_on.set()
            eventually(lambda: not app.queue.list())
        assert not app.audit()

    def test_what_is_off_is_not_replayed(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        bad.add(1)
        register(policy=Policy(on_error=Park()))
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        before = app.queue.list()
        app.outbox.set_mode("sums", "off", by="me")
        with pytest.raises(ConfigError, match="paused, or not live"):
            app.outbox.replay(before[0].id, by="me")
        assert app.queue.list() == before
