"""The queue as people use it: look, put right, never reorder."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from holdfast import (
    App,
    Backoff,
    ConfigError,
    Event,
    Failure,
    Fatal,
    HoldfastError,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    QueueChange,
    QueueItem,
    QueueSelection,
    Reason,
    Retry,
    Skip,
    TableProjection,
    Tx,
    on,
)
from holdfast.testing import FixedClock
from tests.contracts.samples import Counted, execute, fetch, status_of
from tests.support.postgres import wait_until

WAIT_SECONDS = 30.0
ALL = QueueSelection(projection="ledger")
Change = Callable[..., QueueChange]


@dataclass
class Noted:
    n: int


@dataclass
class Total:
    stream: str
    n: int = 0


class Bank:
    """An app with a ledger whose handler fails for the numbers in `broken`."""

    def __init__(
        self, app: App, *, clock: FixedClock, policy: Policy | None = None, again: bool = False
    ) -> None:
        self.app, self.clock = app, clock
        self.broken: dict[int, Exception] = {}
        mark = "?" if str(app.url).startswith("sqlite") else "%s"
        bank = self

        @app.projection(policy=policy or Policy(on_error=Park()))
        class Ledger(Projection):
            tables: ClassVar = {"ledger": "CREATE TABLE ledger (stream text, n bigint, at bigint)"}
            replayable = again

            @on(Counted, Noted)
            def counted(self, event: Event[Any], tx: Tx) -> None:
                if event.data.n in bank.broken:
                    raise bank.broken[event.data.n]
                sql = f"INSERT INTO ledger VALUES ({mark}, {mark}, {mark})"
                tx.execute(sql, (event.stream, event.data.n, event.position))

    def append(self, stream: str, *numbers: int, kind: type = Counted) -> None:
        self.app.journal.append(stream, [kind(n) for n in numbers])

    def park(self) -> list[QueueItem]:
        """Two lanes are closed by a dead head with one event behind it; a third one is fine."""
        self.broken = {2: ValueError("two"), 5: KeyError("five")}
        self.append("a", 1, 2, 3)
        self.clock.advance(60)
        self.append("b", 4)
        self.append("b", 5, 6, kind=Noted)
        self.append("c", 7)
        self.app.catch_up()
        return list(self.app.queue.list())

    def rows(self, stream: str | None = None) -> list[int]:
        where = "" if stream is None else f"WHERE stream = '{stream}'"
        return [n for (n,) in fetch(self.app, f"SELECT n FROM ledger {where} ORDER BY at")]

    def order(self, stream: str) -> list[int]:
        """The numbers of a stream in the order in which they were written, on SQLite by rowid."""
        key = "rowid" if str(self.app.url).startswith("sqlite") else "ctid"
        sql = f"SELECT n FROM ledger WHERE stream = '{stream}' ORDER BY {key}"
        return [n for (n,) in fetch(self.app, sql)]

    def audit(self) -> list[tuple[str, str, str, str | None]]:
        return [(row.actor, row.action, row.subject, row.note) for row in self.app.audit()]


@pytest.fixture
def make(store_url: str) -> Iterator[Callable[..., Bank]]:
    clock = FixedClock()
    with ExitStack() as opened:

        def make(**settings: Any) -> Bank:
            return Bank(opened.enter_context(App(store_url, clock=clock)), clock=clock, **settings)

        yield make


@pytest.fixture
def bank(make: Callable[..., Bank]) -> Bank:
    return make()


def ids(items: Any) -> list[int]:
    return [item.id for item in items]


def by_status(bank: Bank) -> dict[str, QueueItem]:
    """An item in each status that a person can meet."""
    found = bank.park()
    a, b = found[0], found[2]
    bank.app.queue.resolve(QueueSelection(ids=(found[3].id,)), by="me")
    execute(bank.app, f"UPDATE holdfast_queue SET status = 'failed' WHERE id = {b.id}")
    bank.append("d", 8)
    bank.app.catch_up()
    execute(
        bank.app,
        "INSERT INTO holdfast_queue (projection, feed, lane, position, stream, version, event_id,"
        " event_type, data, metadata, recorded_at, status, created_at, updated_at)"
        " SELECT projection, feed, 'z', 7, stream, version, event_id, event_type, data, metadata,"
        f" recorded_at, 'skipped', created_at, updated_at FROM holdfast_queue WHERE id = {a.id}",
    )
    return {item.status: item for item in bank.app.queue.list()}


# Looking


def test_lists_the_oldest_first_with_all_there_is_to_know(bank: Bank) -> None:
    head, behind, *_ = bank.park()
    assert (head.projection, head.feed, head.lane, head.stream) == ("ledger", "journal", "a", "a")
    assert (head.status, head.attempts, head.position, head.version) == ("dead", 1, 2, 2)
    assert (head.event_type, head.data, head.metadata) == ("Counted", '{"n":2}', "{}")
    assert (head.error_type, head.error_message) == ("ValueError", "two")
    assert "raise bank.broken" in str(head.error_stacktrace)
    assert [attempt.error_message for attempt in head.history] == ["two"]
    assert head.created_at == head.first_failed_at == head.last_failed_at == bank.clock.now()
    assert (behind.status, behind.attempts, behind.history) == ("pending", 0, ())
    assert bank.app.queue.get(head.id) == head


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        ({}, [2, 3, 5, 6]),
        ({"projection": "ledger"}, [2, 3, 5, 6]),
        ({"projection": "other"}, []),
        ({"lane": "b"}, [5, 6]),
        ({"status": "dead"}, [2, 5]),
        ({"status": "pending"}, [3, 6]),
        ({"error_type": "KeyError"}, [5]),
        ({"event_type": "Noted"}, [5, 6]),
        ({"event_type": "Counted", "status": "dead"}, [2]),
        ({"older_than_seconds": 0.0}, [2, 3, 5, 6]),
        ({"older_than_seconds": 30.0}, []),
    ],
)
def test_filters(bank: Bank, selection: dict[str, Any], found: list[int]) -> None:
    bank.park()
    items = bank.app.queue.list(QueueSelection(**selection))
    assert [item.position for item in items] == found


def test_older_than_counts_from_when_an_item_came(bank: Bank) -> None:
    bank.park()
    bank.clock.advance(45)
    bank.append("a", 9)
    bank.app.catch_up()
    old = bank.app.queue.list(QueueSelection(older_than_seconds=30))
    assert [item.position for item in old] == [2, 3, 5, 6]


def test_pages_by_limit_and_id(bank: Bank) -> None:
    found = bank.park()
    first = bank.app.queue.list(limit=3)
    assert ids(first) == ids(found[:3])
    assert ids(bank.app.queue.list(limit=3, after_id=first[-1].id)) == ids(found[3:])


def test_a_status_or_an_item_that_does_not_exist(bank: Bank) -> None:
    with pytest.raises(ConfigError, match="'lost' is not one of pending"):
        bank.app.queue.list(QueueSelection(status="lost"))  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="no item 77; holdfast queue list"):
        bank.app.queue.get(77)
    with pytest.raises(HoldfastError, match="no item 77"):
        bank.app.queue.requeue(QueueSelection(ids=(77,)), by="me")


def test_stats(bank: Bank) -> None:
    assert bank.app.queue.stats() == []
    bank.park()
    bank.clock.advance(5)
    found = [
        (c.status, c.error_type, c.items, c.oldest_seconds)
        for c in bank.app.queue.stats()
        if c.projection == "ledger"
    ]
    assert found == [
        ("dead", "KeyError", 1, 5.0),
        ("dead", "ValueError", 1, 5.0),
        ("pending", None, 2, 5.0),
    ]


# Changing


def test_requeue_brings_lanes_back_in_order(bank: Bank) -> None:
    found = bank.park()
    assert bank.rows() == [1, 4, 7]
    bank.append("a", 8)
    bank.app.catch_up()
    bank.broken = {}
    change = bank.app.queue.requeue(ALL, by="me", note="mended")
    assert (change.action, change.dry_run, change.left_alone) == ("requeue", False, ())
    assert ids(change.items) == [found[0].id, found[2].id]
    head = bank.app.queue.get(found[0].id)
    assert (head.status, head.attempts, head.note) == ("pending", 0, "mended")
    assert [attempt.error_message for attempt in head.history] == ["two"]
    bank.append("a", 9)
    bank.app.catch_up()
    assert bank.order("a") == [1, 2, 3, 8, 9]
    assert bank.order("b") == [4, 5, 6]
    assert bank.app.queue.list() == []
    assert status_of(bank.app, "ledger").closed_lanes == 0
    subject = f'{{"items":[{found[0].id},{found[2].id}]}}'
    assert bank.audit() == [("me", "requeue", subject, "mended")]


def test_what_is_requeued_and_fails_again_keeps_its_history(bank: Bank) -> None:
    found = bank.park()
    bank.broken[2] = ValueError("still")
    bank.app.queue.requeue(QueueSelection(ids=(found[0].id,)), by="me")
    bank.app.catch_up()
    head = bank.app.queue.get(found[0].id)
    assert (head.status, head.attempts) == ("dead", 1)
    assert [attempt.error_message for attempt in head.history] == ["two", "still"]
    assert bank.rows("a") == [1]


def test_mark_retrying_waits_for_its_time_and_goes_on_counting(bank: Bank) -> None:
    found = bank.park()
    at = bank.clock.now() + timedelta(seconds=60)
    bank.app.queue.mark_retrying(QueueSelection(lane="a"), by="me", at=at)
    head = bank.app.queue.get(found[0].id)
    assert (head.status, head.attempts, head.next_attempt_at) == ("failed", 1, at)
    bank.broken[2] = ValueError("still")
    bank.app.catch_up()
    assert bank.app.queue.get(found[0].id).attempts == 1
    bank.clock.advance(61)
    bank.app.catch_up()
    assert bank.app.queue.get(found[0].id).attempts == 2
    bank.broken = {}
    bank.app.queue.mark_retrying(QueueSelection(lane="a"), by="me")
    bank.app.catch_up()
    assert bank.order("a") == [1, 2, 3]
    assert [row.action for row in bank.app.audit()] == ["retry", "retry"]


def test_resolve_lets_the_lane_go_on_behind_it(bank: Bank) -> None:
    found = bank.park()
    bank.clock.advance(5)
    change = bank.app.queue.resolve(QueueSelection(ids=(found[0].id,)), by="me", note="by hand")
    assert ids(change.items) == [found[0].id]
    bank.app.catch_up()
    assert bank.rows("a") == [1, 3]
    item = bank.app.queue.get(found[0].id)
    assert (item.status, item.resolved_by, item.note) == ("resolved", "me", "by hand")
    assert item.resolved_at == bank.clock.now()
    assert bank.rows("b") == [4]
    assert bank.audit() == [("me", "resolve", f'{{"items":[{found[0].id}]}}', "by hand")]


def test_resolving_what_waits_behind_a_head_opens_nothing(bank: Bank) -> None:
    found = bank.park()
    bank.app.queue.resolve(QueueSelection(ids=(found[1].id,)), by="me")
    bank.app.catch_up()
    assert bank.rows("a") == [1]
    bank.broken = {}
    bank.app.queue.requeue(QueueSelection(lane="a"), by="me")
    bank.append("a", 8)
    bank.app.catch_up()
    assert bank.order("a") == [1, 2, 8]


def test_purge_deletes_what_is_over(bank: Bank) -> None:
    found = bank.park()
    bank.app.queue.resolve(QueueSelection(lane="a", status="dead"), by="me")
    change = bank.app.queue.purge(ALL, by="me", note="tidy")
    assert ids(change.items) == [found[0].id]
    assert ids(bank.app.queue.list()) == ids(found[1:])
    assert bank.audit()[0] == ("me", "purge", f'{{"items":[{found[0].id}]}}', "tidy")


ALLOWED = {
    "requeue": {"failed", "dead"},
    "mark_retrying": {"failed", "dead"},
    "resolve": {"pending", "failed", "dead", "skipped"},
    "purge": {"skipped", "resolved"},
}


@pytest.mark.parametrize("action", ALLOWED)
def test_an_action_is_for_some_statuses_and_leaves_the_others_alone(
    bank: Bank, action: str
) -> None:
    items = by_status(bank)
    assert items.keys() == {"pending", "failed", "dead", "skipped", "resolved"}
    change: Change = getattr(bank.app.queue, action)
    for status, item in items.items():
        done = change(QueueSelection(ids=(item.id,)), by="me", dry_run=True)
        assert ids(done.items) == ([item.id] if status in ALLOWED[action] else [])
        assert ids(done.left_alone) == ([] if status in ALLOWED[action] else [item.id])
    before = bank.app.audit()
    refused = tuple(i.id for status, i in items.items() if status not in ALLOWED[action])
    done = change(QueueSelection(ids=refused), by="me")
    assert (done.items, ids(done.left_alone)) == ((), list(refused))
    assert {i.id: i for i in bank.app.queue.list()} == {i.id: i for i in items.values()} | {
        i.id: i for i in bank.app.queue.list() if i.id not in ids(items.values())
    }
    assert bank.app.audit() == before


@pytest.mark.parametrize("action", ALLOWED)
def test_a_dry_run_changes_nothing(bank: Bank, action: str) -> None:
    by_status(bank)
    before = bank.app.queue.list(), bank.app.audit(), status_of(bank.app, "ledger")
    change: Change = getattr(bank.app.queue, action)
    preview = change(ALL, by="me", dry_run=True)
    assert preview.dry_run
    assert preview.items
    assert (bank.app.queue.list(), bank.app.audit(), status_of(bank.app, "ledger")) == before
    assert ids(change(ALL, by="me").items) == ids(preview.items)


@pytest.mark.parametrize("action", ["requeue", "mark_retrying", "resolve"])
def test_a_limit_takes_the_oldest(bank: Bank, action: str) -> None:
    found = bank.park()
    change: Change = getattr(bank.app.queue, action)
    done = change(QueueSelection(status="dead"), by="me", limit=1)
    assert ids(done.items) == [found[0].id]
    done = change(QueueSelection(status="dead"), by="me", limit=1)
    assert ids(done.items) == [found[2].id]


def test_an_id_that_is_named_twice_counts_once(bank: Bank) -> None:
    head = bank.park()[0].id
    selection = QueueSelection(ids=(head, head))
    assert ids(bank.app.queue.requeue(selection, by="me", dry_run=True).items) == [head]
    assert ids(bank.app.queue.requeue(selection, by="me").items) == [head]


def test_a_head_whose_retry_stopped_the_projection_stays_due(make: Callable[..., Bank]) -> None:
    """It is left `failed` without a time; a change in its lane must not make it wait for ever."""
    bank = make(policy=Policy(on_error=Park(retry=Backoff(max_attempts=5, delay_seconds=1.0))))
    found = bank.park()
    execute(
        bank.app,
        f"UPDATE holdfast_queue SET status = 'failed', next_attempt_at = NULL"
        f" WHERE id = {found[0].id}",
    )
    bank.broken = {}
    bank.app.queue.resolve(QueueSelection(ids=(found[1].id,)), by="me")
    bank.app.catch_up()
    assert bank.order("a") == [1, 2]


# Parking by hand


def test_add_lets_a_projection_go_on_without_the_event_that_stops_it(
    make: Callable[..., Bank],
) -> None:
    bank = make(policy=Policy.fatal())
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    bank.append("b", 4)
    with pytest.raises(ProjectionFaulted):
        bank.app.catch_up()
    assert "faulted" in [reason.kind for reason in bank.app.explain("ledger")]
    item = bank.app.queue.add("ledger", 2, by="me", error="half of it is missing", note="later")
    assert (item.status, item.position, item.lane, item.attempts) == ("dead", 2, "a", 1)
    assert (item.error_type, item.error_message) == ("Reported", "half of it is missing")
    assert [attempt.error_type for attempt in item.history] == ["ValueError", "Reported"]
    assert item.note == "later"
    assert bank.audit() == [("me", "add", f'{{"items":[{item.id}]}}', "later")]
    kinds = [reason.kind for reason in bank.app.explain("ledger")]
    assert kinds == ["no_worker", "lanes_closed", "behind"]
    bank.app.catch_up()
    assert bank.rows() == [1, 4]
    bank.broken = {}
    bank.app.queue.requeue(QueueSelection(ids=(item.id,)), by="me")
    bank.app.catch_up()
    assert bank.order("a") == [1, 2, 3]


@pytest.mark.parametrize("action", ["requeue", "mark_retrying"])
def test_what_is_added_and_requeued_before_a_worker_runs_is_applied_once(
    make: Callable[..., Bank], action: str
) -> None:
    bank = make(policy=Policy.fatal())
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    with pytest.raises(ProjectionFaulted):
        bank.app.catch_up()
    item = bank.app.queue.add("ledger", 2, by="me")
    bank.broken = {}
    change: Change = getattr(bank.app.queue, action)
    assert ids(change(QueueSelection(ids=(item.id,)), by="me").items) == [item.id]
    bank.app.catch_up()
    assert bank.order("a") == [1, 2, 3]


def test_what_is_added_and_resolved_before_a_worker_runs_is_not_tried(
    make: Callable[..., Bank],
) -> None:
    bank = make(policy=Policy.fatal())
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    with pytest.raises(ProjectionFaulted):
        bank.app.catch_up()
    item = bank.app.queue.add("ledger", 2, by="me")
    bank.app.queue.resolve(QueueSelection(ids=(item.id,)), by="me")
    bank.app.catch_up()
    assert bank.rows() == [1, 3]


def test_add_puts_an_event_behind_what_holds_its_stream(store_url: str) -> None:
    """An event whose row can't be computed holds its stream, for a person's park as well."""
    broken = True
    with App(store_url) as app:

        @app.projection(policy=Policy(on_error=Park()))
        class Totals(TableProjection[Total]):
            def key(self, event: Event[Any]) -> str:
                if broken and event.data.n == 1:
                    raise ValueError("no key")
                return "a row"

            @on(Counted)
            def counted(self, row: Total, event: Event[Counted]) -> None:
                row.n = row.n * 10 + event.data.n

        app.journal.append("s", [Counted(1)])
        app.catch_up()
        app.journal.append("s", [Counted(2)])
        item = app.queue.add("totals", 2, by="me")
        assert item.lane == "a row"
        app.queue.requeue(QueueSelection(ids=(item.id,)), by="me")
        app.catch_up()
        assert fetch(app, "SELECT n FROM totals") == []
        broken = False
        app.queue.requeue(QueueSelection(), by="me")
        app.catch_up()
        assert fetch(app, "SELECT n FROM totals") == [(12,)]


def test_add_refuses_what_would_be_applied_twice(bank: Bank) -> None:
    with pytest.raises(ConfigError, match="never run here"):
        bank.app.queue.add("ledger", 1, by="me")
    bank.append("a", 1)
    bank.app.catch_up()
    with pytest.raises(HoldfastError, match="has passed position 1, and is at 1"):
        bank.app.queue.add("ledger", 1, by="me")
    with pytest.raises(HoldfastError, match="no event at position 9"):
        bank.app.queue.add("ledger", 9, by="me")
    bank.append("a", 2)
    bank.append("b", 3)
    with pytest.raises(HoldfastError, match="other events come before 3"):
        bank.app.queue.add("ledger", 3, by="me")
    bank.app.queue.add("ledger", 2, by="me")
    with pytest.raises(HoldfastError, match="has passed position 2"):
        bank.app.queue.add("ledger", 2, by="me")
    assert [row.action for row in bank.app.audit()] == ["add"]


# Pause


def test_after_a_pause_nothing_is_committed_and_resume_goes_on(bank: Bank) -> None:
    with bank.app.running():
        bank.append("a", 1)
        bank.app.wait_for("ledger", 1)
        assert bank.app.pause("ledger", by="me", note="maintenance")
        assert not bank.app.pause("ledger", by="you")
        bank.append("a", 2, 3)
        wait_until(lambda: status_of(bank.app, "ledger").head == 3, WAIT_SECONDS, "events")
        status = status_of(bank.app, "ledger")
        assert (status.state, status.position, bank.rows()) == ("paused", 1, [1])
        assert (status.paused_by, status.paused_note) == ("me", "maintenance")
        assert status.paused_at == bank.clock.now()
        assert status.leader is not None
        assert bank.app.resume("ledger", by="you")
        assert not bank.app.resume("ledger", by="you")
        bank.app.wait_for("ledger", 3)
        assert status_of(bank.app, "ledger").state == "running"
    assert bank.rows() == [1, 2, 3]
    assert bank.audit() == [
        ("you", "resume", "{}", None),
        ("me", "pause", "{}", "maintenance"),
    ]


def test_a_pause_stops_a_handler_that_is_at_work(store_url: str) -> None:
    reached, go_on = threading.Event(), threading.Event()
    with App(store_url) as app:

        @app.projection
        class Totals(TableProjection[Total]):
            @on(Counted)
            def counted(self, row: Total, event: Event[Counted]) -> None:
                row.n += event.data.n
                if event.data.n == 2:
                    reached.set()
                    assert go_on.wait(WAIT_SECONDS)

        with app.running():
            app.journal.append("a", [Counted(1)])
            app.wait_for("totals", 1)
            app.journal.append("a", [Counted(2)])
            assert reached.wait(WAIT_SECONDS)
            app.pause("totals", by="me")
            go_on.set()
        assert fetch(app, "SELECT n FROM totals") == [(1,)]
        app.resume("totals", by="me")
        app.catch_up()
        assert fetch(app, "SELECT n FROM totals") == [(3,)]


def test_a_pause_outlives_a_restart(make: Callable[..., Bank]) -> None:
    make().app.pause("ledger", by="me")
    bank = make()
    bank.append("a", 1)
    with bank.app.running():
        wait_until(
            lambda: status_of(bank.app, "ledger").leader is not None, WAIT_SECONDS, "a leader"
        )
        assert status_of(bank.app, "ledger").state == "paused"
    with pytest.raises(ProjectionFaulted, match="paused by me; holdfast resume ledger"):
        bank.app.catch_up()
    assert status_of(bank.app, "ledger").position == 0
    bank.app.resume("ledger", by="me")
    bank.app.catch_up()
    assert bank.rows() == [1]


# Rewind


def test_rewind_applies_again_from_a_position_or_the_first_skip(make: Callable[..., Bank]) -> None:
    bank = make(policy=Policy(on_error=Skip()), again=True)
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    bank.app.catch_up()
    (skipped,) = bank.app.queue.list()
    assert (skipped.status, bank.rows()) == ("skipped", [1, 3])
    bank.broken = {}
    assert bank.app.rewind("ledger", by="me", note="mended") == 1
    assert bank.app.queue.list() == []
    bank.app.catch_up()
    assert bank.rows() == [1, 2, 3, 3]
    assert bank.app.rewind("ledger", to=0, by="me") == 0
    bank.app.catch_up()
    assert bank.rows() == [1, 1, 2, 2, 3, 3, 3]
    assert bank.audit() == [
        ("me", "rewind", '{"position":0,"items":[]}', None),
        ("me", "rewind", f'{{"position":1,"items":[{skipped.id}]}}', "mended"),
    ]


def test_a_rewind_leaves_alone_what_a_person_has_dealt_with(make: Callable[..., Bank]) -> None:
    bank = make(again=True)
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    bank.app.catch_up()
    bank.app.queue.resolve(QueueSelection(status="dead"), by="me")
    bank.app.catch_up()
    bank.broken = {}
    bank.app.rewind("ledger", to=0, by="me")
    bank.app.catch_up()
    assert bank.order("a") == [1, 3, 1, 3]


@pytest.mark.parametrize("to", [0, 1, 2])
def test_a_rewind_comes_to_what_waits_again(make: Callable[..., Bank], to: int) -> None:
    bank = make(again=True)
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    bank.append("b", 4)
    bank.app.catch_up()
    bank.app.rewind("ledger", to=to, by="me")
    bank.app.catch_up()
    assert bank.order("a") == ([1, 1] if to == 0 else [1])
    assert [(item.position, item.status) for item in bank.app.queue.list()] == [
        (2, "dead"),
        (3, "pending"),
    ]
    bank.broken = {}
    bank.app.queue.requeue(QueueSelection(), by="me")
    bank.app.catch_up()
    assert bank.order("a")[-3:] == [1, 2, 3]
    assert bank.app.queue.list() == []


def test_a_rewind_that_is_refused(make: Callable[..., Bank], store_url: str) -> None:
    bank = make(again=True)
    bank.append("a", 1, 2)
    bank.app.catch_up()
    with pytest.raises(HoldfastError, match="has no skipped event"):
        bank.app.rewind("ledger", by="me")
    with pytest.raises(HoldfastError, match="not beyond position 2"):
        bank.app.rewind("ledger", to=2, by="me")
    once = make()
    with pytest.raises(ConfigError, match="replayable = True"):
        once.app.rewind("ledger", to=0, by="me")
    with App(store_url) as app:

        @app.projection
        class Totals(TableProjection[Total]):
            @on(Counted)
            def counted(self, row: Total, event: Event[Counted]) -> None:
                row.n += event.data.n

        app.catch_up()
        with pytest.raises(ConfigError, match="holdfast reset totals"):
            app.rewind("totals", to=0, by="me")
    assert bank.app.audit() == []
    assert status_of(bank.app, "ledger").position == 2


def test_the_audit_is_by_projection_and_the_latest_first(bank: Bank) -> None:
    bank.app.pause("ledger", by="me")
    bank.app.resume("ledger", by="you")
    assert [row.action for row in bank.app.audit("ledger")] == ["resume", "pause"]
    assert [row.action for row in bank.app.audit(limit=1)] == ["resume"]
    with pytest.raises(ConfigError, match="no projection 'other'"):
        bank.app.audit("other")


# Explaining


def park_or_stop(failure: Failure) -> Park | Retry | Fatal:
    """Parks a ValueError, waits for a LookupError, and stops for all others."""
    if isinstance(failure.error, ValueError):
        return Park()
    if isinstance(failure.error, LookupError):
        return Retry(Backoff(delay_seconds=600, max_delay_seconds=600))
    return Fatal()


def reasons(bank: Bank) -> dict[str, Reason]:
    return {reason.kind: reason for reason in bank.app.explain("ledger")}


def stop_in_the_queue(bank: Bank, *, change: str = "requeue") -> QueueItem:
    """The head of lane a stops the projection when it is tried from the queue."""
    bank.broken = {2: ValueError("two")}
    bank.append("a", 1, 2, 3)
    bank.app.catch_up()
    bank.broken = {2: RuntimeError("boom")}
    bank.clock.advance(1)
    getattr(bank.app.queue, change)(QueueSelection(lane="a"), by="me")
    with pytest.raises(ProjectionFaulted):
        bank.app.catch_up()
    return bank.app.queue.list()[0]


@pytest.mark.parametrize(
    ("change", "status"), [("requeue", "pending"), ("mark_retrying", "failed")]
)
def test_explain_shows_the_fault_of_an_event_in_the_queue(
    make: Callable[..., Bank], change: str, status: str
) -> None:
    bank = make(policy=Policy(on_error=park_or_stop))
    item = stop_in_the_queue(bank, change=change)
    found = reasons(bank)
    assert list(found) == ["faulted", "lanes_closed", "nothing_to_do"]
    fault = found["faulted"]
    assert fault.text.startswith("it stopped at position 2, 'Counted' event")
    assert fault.text.endswith("RuntimeError: boom")
    fields = fault.fields
    assert (fields["position"], fields["item"]) == (2, item.id)
    assert (fields["item_status"], item.status) == (status, status)


def test_explain_shows_it_until_a_worker_runs_though_the_event_is_resolved(
    make: Callable[..., Bank],
) -> None:
    bank = make(policy=Policy(on_error=park_or_stop))
    item = stop_in_the_queue(bank)
    bank.app.queue.resolve(QueueSelection(ids=(item.id,)), by="me")
    assert reasons(bank)["faulted"].fields["item_status"] == "resolved"
    bank.app.queue.purge(QueueSelection(ids=(item.id,)), by="me")
    assert reasons(bank)["faulted"].fields["item"] is None
    bank.app.catch_up()
    assert list(reasons(bank)) == ["no_worker", "nothing_to_do"]


@pytest.mark.parametrize("change", ["requeue", "mark_retrying", "resolve"])
def test_explain_shows_no_fault_that_was_passed_by_hand(
    make: Callable[..., Bank], change: str
) -> None:
    bank = make(policy=Policy.fatal())
    bank.broken = {1: ValueError("one")}
    bank.append("a", 1, 2)
    with pytest.raises(ProjectionFaulted):
        bank.app.catch_up()
    assert reasons(bank)["faulted"].fields["item"] is None
    bank.clock.advance(1)
    item = bank.app.queue.add("ledger", 1, by="me")
    assert "faulted" not in reasons(bank)
    getattr(bank.app.queue, change)(QueueSelection(ids=(item.id,)), by="me")
    assert "faulted" not in reasons(bank)


def test_explain_says_whether_other_lanes_go_on(make: Callable[..., Bank]) -> None:
    bank = make(policy=Policy(on_error=park_or_stop))
    bank.broken = {2: ValueError("two"), 5: LookupError("five"), 6: RuntimeError("six")}
    bank.append("a", 1, 2, 3)

    def others_go_on() -> bool:
        return "no other lane is held up" in reasons(bank)["lanes_closed"].text

    with bank.app.running():
        bank.app.wait_for("ledger", 3)
        assert others_go_on()
        bank.app.pause("ledger", by="me")
        assert not others_go_on()
        bank.app.resume("ledger", by="me")
        assert others_go_on()
        bank.append("b", 5)
        wait_until(lambda: "waiting" in reasons(bank), WAIT_SECONDS, "a retry")
        assert not others_go_on()
    bank.broken = {2: ValueError("two"), 6: RuntimeError("six")}
    bank.append("b", 6)
    with pytest.raises(ProjectionFaulted):
        bank.app.catch_up()
    assert "faulted" in reasons(bank)
    assert not others_go_on()
    bank.app.pause("ledger", by="me")
    assert {"paused", "faulted"} <= reasons(bank).keys()
    assert not others_go_on()
