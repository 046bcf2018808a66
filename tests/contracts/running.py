"""What an app promises while it runs: progress, read-your-writes, and clean ends."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import ConfigError, WaitTimeout
from holdfast.model.event import Event
from holdfast.model.projection import Projection, TableProjection, Tx, on
from holdfast.runtime.signals import Committed, Signal, Started, Stopped
from holdfast.sql.process_name import process_name
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import (
    SUMS,
    WAIT_SECONDS,
    Counted,
    Sum,
    Sums,
    concurrently,
    counted,
    fetch,
    status_of,
)


class RunningContract:
    """Needs a fixture `app`: an App on an empty database."""

    @pytest.fixture
    def app(self) -> App:
        raise NotImplementedError

    def test_a_write_can_be_read_after_waiting(self, app: App) -> None:
        app.projection(Sums)
        with app.running() as running:
            for n in range(1, 6):
                appended = app.journal.append("a", [Counted(n)])
                app.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)
                assert fetch(app, SUMS) == [("a", sum(range(n + 1)))]
            assert running.faulted == {}
            assert status_of(app, "sums").state == "running"
        assert status_of(app, "sums").state == "stopped"

    def test_the_same_for_asyncio(self, app: App) -> None:
        app.projection(Sums)

        async def serve() -> None:
            async with app.running():
                for n in range(1, 6):
                    appended = await app.journal.append_async("a", [Counted(n)])
                    await app.wait_for_async(
                        "sums", appended.position, timeout_seconds=WAIT_SECONDS
                    )
                    assert fetch(app, SUMS) == [("a", sum(range(n + 1)))]

        asyncio.run(serve())
        assert status_of(app, "sums").state == "stopped"

    def test_an_error_inside_the_block_ends_the_runners(self, app: App) -> None:
        app.projection(Sums)

        def fail() -> None:
            with app.running():
                raise KeyError("inside")

        with pytest.raises(KeyError):
            fail()
        app.journal.append("a", [Counted(1)])
        with pytest.raises(WaitTimeout):
            app.wait_for(Sums, 1, timeout_seconds=0.01)

    def test_running_again_goes_on(self, app: App) -> None:
        app.projection(Sums)
        for n in range(1, 4):
            appended = app.journal.append("a", [Counted(n)])
            with app.running():
                app.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)
        assert fetch(app, SUMS) == [("a", 6)]

    def test_waiting_in_vain_says_so(self, app: App) -> None:
        app.projection(Sums)
        appended = app.journal.append("a", [Counted(1)])
        with pytest.raises(WaitTimeout, match=r"'sums' is at position 0 .* is a worker running"):
            app.wait_for("sums", appended.position, timeout_seconds=0.01)
        app.wait_for("sums", 0, timeout_seconds=0.01)

    def test_an_unknown_projection_is_an_error(self, app: App) -> None:
        app.projection(Sums)
        for call in (app.reset, app.depose, lambda name: app.wait_for(name, 1)):
            with pytest.raises(ConfigError, match=r"there is no projection .*sums"):
                call("sum")

    def test_an_app_without_projections_does_not_run(self, app: App) -> None:
        with pytest.raises(ConfigError, match="no projections"):
            app.catch_up()

    def test_catching_up_with_nothing_to_do(self, app: App) -> None:
        app.projection(Sums)
        app.catch_up()
        app.catch_up()
        status = status_of(app, "sums")
        assert (status.position, status.head, status.events_processed) == (0, 0, 0)
        assert fetch(app, SUMS) == []

    def test_catching_up_while_it_runs(self, app: App) -> None:
        app.projection(Sums)
        with app.running():
            for n in range(1, 6):
                app.journal.append("a", [Counted(n)])
                app.catch_up(timeout_seconds=WAIT_SECONDS)
                assert fetch(app, SUMS) == [("a", sum(range(n + 1)))]

    def test_catching_up_has_a_time_limit(self, app: App) -> None:
        @app.projection
        class Slow(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                time.sleep(0.3)
                row.total += 1

        app.journal.append("a", [Counted(1)])
        with pytest.raises(WaitTimeout):
            app.catch_up(timeout_seconds=0.01)
        app.catch_up()
        assert fetch(app, "SELECT total FROM slow") == [(1,)]

    def test_the_status_tells_how_far_it_is(self, app: App) -> None:
        app.projection(Sums)
        first = app.journal.append("a", [Counted(1), Counted(2)])
        app.catch_up()
        app.journal.append("a", [Counted(3), Counted(4), Counted(5)])
        status = status_of(app, "sums")
        assert (status.feed, status.state, status.leader) == ("journal", "stopped", None)
        assert (status.position, status.head) == (first.position, app.journal.head())
        assert (status.lag_events, status.events_processed) == (3, 2)
        assert status.lag_seconds >= 0
        *_, last = app.journal.read(limit=2)
        assert (status.last_event_id, status.last_event_type) == (last.id, "Counted")
        assert status.last_processed_at is not None
        assert status.last_processed_at.tzinfo is not None
        app.catch_up()
        status = status_of(app, "sums")
        assert (status.lag_events, status.lag_seconds, status.events_processed) == (0, 0.0, 5)

    @pytest.mark.parametrize("by", [None, "anna"])
    def test_changes_are_logged_and_in_the_audit(
        self, app: App, by: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        app.projection(Sums)
        app.catch_up()
        with caplog.at_level(logging.INFO, logger="holdfast"):
            app.reset(Sums, by=by)
            app.catch_up()
            app.depose(Sums, by=by)
            app.pause(Sums, by="anna")
            app.resume(Sums, by="anna")
            assert not app.resume(Sums, by="anna")
        told = [vars(r)["holdfast"] for r in caplog.records if "projection changed" in r.message]
        who = by or process_name()
        expected = [("reset", who), ("depose", who), ("pause", "anna"), ("resume", "anna")]
        assert [(fields["action"], fields["by"]) for fields in told] == expected
        found = [(row.action, row.actor) for row in reversed(app.audit())]
        assert list(dict.fromkeys(found)) == expected  # Each shard is deposed by itself.

    def test_a_reset_builds_it_again(self, app: App) -> None:
        app.projection(Sums)
        app.journal.append("a", [Counted(n) for n in range(100)])
        app.catch_up()
        assert app.reset(Sums) == ["sums"]
        assert fetch(app, SUMS) == []
        assert status_of(app, "sums").position == 0
        app.catch_up()
        assert fetch(app, SUMS) == [("a", 4950)]

    def test_a_checkpoint_that_was_wound_back_applies_nothing_twice(self, app: App) -> None:
        """As after a restore of the checkpoints from an older backup than the rows'."""
        app.projection(Sums)
        app.journal.append("a", [Counted(n) for n in range(10)])
        app.catch_up()
        with app._database.writing() as connection:
            connection.script("UPDATE holdfast_checkpoint SET position = position - 5")
        app.journal.append("a", [Counted(100)])
        app.journal.append("b", [Counted(1)])
        app.catch_up()
        assert fetch(app, SUMS) == [("a", 145), ("b", 1)]

    @pytest.mark.parametrize("disturbance", ["reset", "depose"])
    def test_a_disturbance_while_it_runs(self, app: App, disturbance: str) -> None:
        app.projection(Sums)
        total = 0
        with app.running():
            for n in range(1, 4):
                app.journal.append("a", [Counted(i) for i in range(200)])
                total += sum(range(200))
                if disturbance == "reset":
                    app.reset(Sums)
                else:
                    app.depose(Sums)
                appended = app.journal.append("b", [Counted(n)])
                app.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)
                assert fetch(app, SUMS) == [("a", total), ("b", sum(range(n + 1)))]
            assert status_of(app, "sums").state == "running"

    def test_whoever_was_taken_over_begins_no_side_effect(self, app: App) -> None:
        called: list[int] = []

        @app.projection
        class Calling(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                called.append(event.data.n)

        first = app.journal.append("a", [Counted(1)])
        with app.running(), closing(SqlSession(app._database)) as session:
            app.wait_for(Calling, first.position, timeout_seconds=WAIT_SECONDS)
            session.take_over(session.open_checkpoint("calling", "journal"))
            second = app.journal.append("a", [Counted(2)])
            app.wait_for(Calling, second.position, timeout_seconds=WAIT_SECONDS)
        assert called == [1, 2]

    def test_writers_and_runners_side_by_side(self, app: App) -> None:
        app.projection(Sums)
        app.projection(name="again")(Sums)

        def write(writer: int) -> None:
            for n in range(20):
                app.journal.append(f"s{n % 4}", [Counted(1), Counted(writer)])

        with app.running():
            concurrently(4, write)
            for name in ("sums", "again"):
                app.wait_for(name, app.journal.head(), timeout_seconds=WAIT_SECONDS)
        expected = [(f"s{n}", 20 + 5 * (0 + 1 + 2 + 3)) for n in range(4)]
        assert fetch(app, SUMS) == expected
        assert fetch(app, SUMS.replace("sums", "again")) == expected

    def test_listeners_hear_what_happens(self, app: App) -> None:
        app.projection(Sums)
        heard: list[Signal] = []
        app.listen(heard.append)
        appended = app.journal.append("a", [Counted(1), Counted(2)])
        app.catch_up()
        started, committed, stopped = heard
        assert isinstance(started, Started)
        assert (started.projection, started.feed, started.position) == ("sums", "journal", 0)
        assert isinstance(committed, Committed)
        assert (committed.position, committed.events) == (appended.position, 2)
        assert isinstance(stopped, Stopped)
        assert stopped.position == appended.position

    def test_a_handler_for_dicts_and_classes_of_one_type(self, app: App) -> None:
        app.projection(Sums)
        app.journal.append("a", [counted(1), Counted(2), counted(3)])
        app.catch_up()
        assert fetch(app, SUMS) == [("a", 6)]

    def test_what_is_registered_twice_is_an_error(self, app: App) -> None:
        app.projection(Sums)
        with pytest.raises(ConfigError, match="two projections are named 'sums'"):
            app.projection(Sums)
        assert app.projections == ("sums",)

    def test_closing_ends_everything(self, app: App) -> None:
        app.projection(Sums)
        before = set(threading.enumerate())
        with app.running():
            appended = app.journal.append("a", [Counted(1)])
            app.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)
        app.close()
        left: list[Any] = [t for t in set(threading.enumerate()) - before if t.is_alive()]
        assert left == []
        app.close()
