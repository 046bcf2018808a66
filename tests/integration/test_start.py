"""Where a projection begins, and how a person moves it forward."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from holdfast import (
    App,
    ConfigError,
    Event,
    HoldfastError,
    NewEvent,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    QueueSelection,
    Tx,
    on,
)
from holdfast.testing import FixedClock
from tests.contracts.samples import fetch

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DELIVERIES: list[dict[str, Any]] = [{}, {"shards": 3}, {"delivery": "outbox"}]


class Seen(Projection):
    tables: ClassVar = {"seen": "CREATE TABLE seen (position INTEGER)"}

    @on("Counted")
    def counted(self, event: Event[Any], tx: Tx) -> None:
        if event.data.get("bad"):
            raise ValueError("bad")
        tx.connection.execute(f"INSERT INTO seen VALUES ({event.position})")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(T0)


@pytest.fixture
def app(store_url: str, clock: FixedClock) -> Iterator[App]:
    """An app whose journal has five events, a minute apart, of five streams."""
    with App(store_url, clock=clock) as app:
        append(app, clock, 5)
        yield app


def append(app: App, clock: FixedClock, events: int, **data: Any) -> None:
    for _ in range(events):
        app.journal.append(f"s-{app.journal.head()}", [NewEvent(data, type="Counted")])
        clock.advance(60)


def seen(app: App) -> list[int]:
    return [row[0] for row in fetch(app, "SELECT position FROM seen ORDER BY position")]


@pytest.fixture(params=DELIVERIES, ids=["log", "shards", "outbox"])
def delivery(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("now", [6]),
        (3, [4, 5, 6]),
        (T0, [1, 2, 3, 4, 5, 6]),
        (T0 + timedelta(seconds=180), [4, 5, 6]),
        (T0 + timedelta(seconds=299), [6]),
    ],
)
def test_it_begins_where_the_code_says(
    app: App, clock: FixedClock, delivery: dict[str, Any], start: Any, expected: list[int]
) -> None:
    app.projection(start=start, **delivery)(Seen)
    app.catch_up()
    append(app, clock, 1)
    app.catch_up()
    assert seen(app) == expected
    assert all(status.lag_events == 0 for status in app.status())
    app.reset("seen", by="ann")  # Begins where it has begun.
    app.catch_up()
    assert seen(app) == expected


@pytest.mark.parametrize("start", ["now", 4, T0 + timedelta(seconds=200)])
def test_a_start_does_not_move_what_has_begun(
    store_url: str, app: App, delivery: dict[str, Any], start: Any
) -> None:
    app.projection(**delivery)(Seen)
    app.catch_up()
    with App(store_url, clock=app._clock) as later:
        later.projection(start=start, **delivery)(Seen)
        later.journal.append("a", [NewEvent({}, type="Counted")])
        later.catch_up()
        assert seen(later) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("start", "message"),
    [(6, "start is position 6, and the journal ends at 5"), (T0 + timedelta(days=1), "to come")],
)
def test_a_place_that_is_still_to_come_is_a_fault(
    app: App, clock: FixedClock, delivery: dict[str, Any], start: Any, message: str
) -> None:
    app.projection(start=start, **delivery)(Seen)
    with pytest.raises(ProjectionFaulted, match=message):
        app.catch_up()
    append(app, clock, 2)  # Nobody is kept from appending.
    clock.advance(86_400)
    app.catch_up()
    assert seen(app) == ([7] if start == 6 else [])


@pytest.mark.parametrize("start", ["end", -1, True, 1.5, None, datetime(2026, 1, 1)])
def test_a_senseless_start_is_refused(start: Any) -> None:
    with pytest.raises(ConfigError, match="start is "):
        App("sqlite:///:memory:").projection(start=start)


# Forward


@pytest.mark.parametrize(
    ("to", "position"), [("now", 5), (3, 3), (T0 + timedelta(seconds=180), 3), (T0, None)]
)
def test_a_person_moves_it_forward(
    app: App, clock: FixedClock, delivery: dict[str, Any], to: Any, position: int | None
) -> None:
    app.projection(**delivery)(Seen)
    if position is None:
        with pytest.raises(HoldfastError, match="nothing to pass up to position 0"):
            app.forward("seen", to, by="ann")
        return
    planned = app.forward("seen", to, by="ann", preview=True)
    assert app.audit() == []
    done = app.forward("seen", to, by="ann", note="old")
    assert done == planned
    assert {(move.position_before, move.position, move.events) for move in done} == {
        (0, position, position)
    }
    assert len(done) == delivery.get("shards", 1)
    (row,) = app.audit("seen")
    assert (row.action, row.actor, row.note) == ("forward", "ann", "old")
    assert f'"to":{position},"events":{position}' in row.subject
    with pytest.raises(HoldfastError, match="nothing to pass"):
        app.forward("seen", position, by="ann")
    append(app, clock, 1)
    app.catch_up()
    assert seen(app) == list(range(position + 1, 7))
    app.reset("seen")
    app.catch_up()
    assert seen(app) == [1, 2, 3, 4, 5, 6]


def test_workers_go_on_behind_it(app: App, clock: FixedClock, delivery: dict[str, Any]) -> None:
    app.projection(**delivery)(Seen)
    app.pause("seen", by="ann")
    with app.running():
        app.forward("seen", 4, by="ann")
        app.resume("seen", by="ann")
        app.wait_for("seen", 5)
        append(app, clock, 1)
        app.wait_for("seen", 6)
    assert seen(app) == [5, 6]


def test_what_has_failed_stays(app: App, clock: FixedClock, delivery: dict[str, Any]) -> None:
    append(app, clock, 1, bad=True)
    app.projection(policy=Policy(on_error=Park()), **delivery)(Seen)
    app.catch_up()
    app.pause("seen", by="ann")
    append(app, clock, 3)
    app.forward("seen", "now", by="ann")
    app.resume("seen", by="ann")
    app.catch_up()
    assert seen(app) == [1, 2, 3, 4, 5]
    assert [(item.position, item.status) for item in app.queue.list()] == [(6, "dead")]


@pytest.mark.parametrize(
    ("to", "message"),
    [
        (6, "to is position 6, and the journal ends at 5"),
        (T0 + timedelta(days=1), "still to come"),
        ("end", "to is 'end'; it is 'now', a position"),
        (-1, "to is -1"),
    ],
)
def test_a_place_that_is_not_there_is_refused(app: App, to: Any, message: str) -> None:
    app.projection(Seen)
    with pytest.raises(ConfigError, match=message):
        app.forward("seen", to, by="ann")
    with pytest.raises(ConfigError, match="leave out feed"):
        app.forward("seen", 1, feed="journal", by="ann")


@pytest.mark.parametrize("by", ["", "  "])
def test_a_change_needs_a_name(app: App, by: Any) -> None:
    app.projection(delivery="outbox")(Seen)
    for change in (
        lambda: app.pause("seen", by=by),
        lambda: app.forward("seen", "now", by=by),
        lambda: app.outbox.set_mode("seen", "off", by=by),
        lambda: app.queue.requeue(QueueSelection(), by=by),
    ):
        with pytest.raises(ConfigError, match="by is empty"):
            change()
