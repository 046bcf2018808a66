"""The row of a closed lane says what waits in it, and when it is tried, at every moment."""

from collections.abc import Iterator

import pytest

from holdfast import App, Event, HoldfastError, QueueSelection
from tests.support.limits import set_limits
from tests.world.app import Moved, build_app
from tests.world.checks import check_one
from tests.world.spoilt import PARKS, Poisoned

spoilt: set[int] = set()


def fail(event: Event[Moved]) -> None:
    if event.data.amount in spoilt:
        raise Poisoned(event.data.amount)


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    spoilt.clear()
    with build_app(store_url, "ledger", policy=PARKS, after=fail) as app:
        yield app


def test_only_the_next_event_can_be_added(app: App, store_url: str) -> None:
    """One parked ahead of the feed would keep back, or be done before, what precedes it."""
    app.journal.append("lane-1", [Moved(1)])
    app.catch_up()
    app.journal.append("lane-1", [Moved(number) for number in (2, 3, 4)])
    before = check_one(store_url, "ledger")
    with pytest.raises(HoldfastError, match="other events come before 3"):
        app.queue.add("ledger", 3, by="an operator")
    assert check_one(store_url, "ledger") == before
    app.queue.add("ledger", 2, by="an operator")
    app.catch_up()
    found = check_one(store_url, "ledger")
    assert found.applied == [1]
    assert found.outstanding == [2, 3, 4]
    app.queue.requeue(QueueSelection(), by="an operator")
    app.catch_up()
    assert check_one(store_url, "ledger", complete=True).applied == [1, 2, 3, 4]


def test_lane_is_counted_right_after_a_full_drain(app: App, store_url: str) -> None:
    """A drain takes as many as its limit, which are all there are; then another one fails."""
    set_limits(app, drain_events=2)
    spoilt.add(1)
    app.journal.append("lane-1", [Moved(1), Moved(2)])
    app.catch_up()
    app.queue.requeue(QueueSelection(), by="an operator")
    spoilt.clear()
    spoilt.add(3)
    app.journal.append("lane-1", [Moved(3)])
    app.catch_up()
    found = check_one(store_url, "ledger")
    assert found.applied == [1, 2]
    assert found.outstanding == [3]
    spoilt.clear()
    app.queue.requeue(QueueSelection(), by="an operator")
    app.catch_up()
    assert check_one(store_url, "ledger", complete=True).applied == [1, 2, 3]
