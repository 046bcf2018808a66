"""The row of a closed lane says what waits in it, and when it is tried, at every moment."""

from collections.abc import Iterator

import pytest

from holdfast import App, Event, HoldfastError, QueueSelection
from tests.support.lanes import Poisoned, Stepped, build_lanes_app, check_all_done, check_lanes
from tests.support.limits import set_limits

spoilt: set[int] = set()


def fail(event: Event[Stepped]) -> None:
    if event.data.number in spoilt:
        raise Poisoned(event.data.number)


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    spoilt.clear()
    with build_lanes_app(store_url, "noted", spoil=fail) as app:
        yield app


def test_only_the_next_event_can_be_added(app: App, store_url: str) -> None:
    """One parked ahead of the feed would keep back, or be done before, what precedes it."""
    app.journal.append("lane-1", [Stepped(1)])
    app.catch_up()
    app.journal.append("lane-1", [Stepped(number) for number in (2, 3, 4)])
    before = check_lanes(store_url, "noted")
    with pytest.raises(HoldfastError, match="other events come before 3"):
        app.queue.add("noted", 3, by="a person")
    assert check_lanes(store_url, "noted") == before
    app.queue.add("noted", 2, by="a person")
    app.catch_up()
    found = check_lanes(store_url, "noted")
    assert found.applied == [1]
    assert found.outstanding == [2, 3, 4]
    app.queue.requeue(QueueSelection(), by="a person")
    app.catch_up()
    assert check_all_done(store_url, "noted").applied == [1, 2, 3, 4]


def test_lane_is_counted_right_after_a_full_drain(app: App, store_url: str) -> None:
    """A drain takes as many as its limit, which are all there are; then another one fails."""
    set_limits(app, drain_events=2)
    spoilt.add(1)
    app.journal.append("lane-1", [Stepped(1), Stepped(2)])
    app.catch_up()
    app.queue.requeue(QueueSelection(), by="a person")
    spoilt.clear()
    spoilt.add(3)
    app.journal.append("lane-1", [Stepped(3)])
    app.catch_up()
    found = check_lanes(store_url, "noted")
    assert found.applied == [1, 2]
    assert found.outstanding == [3]
    spoilt.clear()
    app.queue.requeue(QueueSelection(), by="a person")
    app.catch_up()
    assert check_all_done(store_url, "noted").applied == [1, 2, 3]
