"""Publishers, with another system that the tests play: what is committed when, and who is to blame.

`Wire` is that system: what arrives there is what others see, and it can refuse or be away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from holdfast import (
    App,
    Backoff,
    ConfigError,
    Event,
    NewEvent,
    Park,
    Policy,
    Poll,
    ProjectionFaulted,
    QueueSelection,
    StoreUnavailable,
    Tx,
    on,
)
from holdfast.model.event import RawEvent
from holdfast.model.projection import Publisher
from holdfast.runtime.engines.engine import BatchRefused, EventFailed
from tests.support.sql import execute

QUICK = Poll(failure_backoff=Backoff(delay_seconds=0.001, max_delay_seconds=0.001))
PARK = Policy(on_error=Park())


@dataclass
class Wire:
    """What has arrived, batch by batch; `refused` are numbers that it does not take."""

    arrived: list[list[RawEvent]] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    says_which: bool = True
    at_end: Callable[[], None] = lambda: None

    @property
    def numbers(self) -> list[int]:
        return [number(event) for batch in self.arrived for event in batch]


def number(event: RawEvent) -> int:
    return int(event.type.removeprefix("n"))


def publisher(wire: Wire) -> type[Publisher]:
    class Published(Publisher):
        tables: ClassVar = {"fallen": "CREATE TABLE fallen (n bigint)"}

        @on("*")
        def published(self, event: RawEvent, publish: Callable[[RawEvent], None]) -> None:
            publish(event)

        @contextmanager
        def batch(self) -> Iterator[Callable[[RawEvent], None]]:
            events: list[RawEvent] = []

            def publish(event: RawEvent) -> None:
                if wire.says_which and number(event) in wire.refused:
                    raise EventFailed(event, ValueError("too odd"))
                events.append(event)

            yield publish
            wire.tried.append(len(events))
            wire.at_end()
            if not wire.refused.isdisjoint(map(number, events)):
                raise BatchRefused from ValueError("one is too odd")
            wire.arrived.append(events)

    return Published


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        yield app


@pytest.fixture
def wire() -> Wire:
    return Wire()


def append(app: App, *numbers: int) -> None:
    """An event of each number; those of one tens digit have a stream in common."""
    for n in numbers:
        app.journal.append(f"stream-{n // 10}", [NewEvent({}, type=f"n{n}")])


def positions(app: App) -> list[int]:
    return [status.position for status in app.status()]


def test_a_batch_is_committed_when_it_is_acknowledged(app: App, wire: Wire) -> None:
    app.projection(publisher(wire))
    seen: list[int] = []
    wire.at_end = lambda: seen.extend(positions(app))
    append(app, *range(5))
    app.catch_up()
    assert (wire.numbers, wire.tried, seen) == ([0, 1, 2, 3, 4], [5], [0])
    assert positions(app) == [app.journal.head()]


def test_events_come_as_they_are_stored(app: App, wire: Wire) -> None:
    app.projection(publisher(wire))
    app.journal.append("stream", [NewEvent({"b": 1, "a": 2}, type="n1")], metadata={"by": "me"})
    app.catch_up()
    assert wire.arrived == [list(app.journal.read_raw())]


def test_it_goes_on_by_itself_when_the_other_system_is_back(app: App, wire: Wire) -> None:
    app.projection(poll=QUICK, policy=PARK)(publisher(wire))
    answers = iter([StoreUnavailable("away"), StoreUnavailable("away"), None])

    def at_end() -> None:
        if (error := next(answers)) is not None:
            raise error

    wire.at_end = at_end
    append(app, *range(5))
    app.catch_up()
    assert (wire.numbers, wire.tried) == ([0, 1, 2, 3, 4], [5, 5, 5])
    assert not app.queue.list()


def test_the_database_is_free_while_it_publishes(app: App, wire: Wire) -> None:
    app.projection(publisher(wire))
    appended: list[bool] = []

    def at_end() -> None:
        thread = threading.Thread(target=append, args=(app, 90))
        thread.start()
        thread.join(5.0)
        appended.append(not thread.is_alive())
        wire.at_end = lambda: None

    wire.at_end = at_end
    append(app, *range(5))
    app.catch_up()
    assert appended == [True]


@pytest.mark.parametrize("says_which", [True, False])
def test_one_event_is_to_blame(app: App, wire: Wire, says_which: bool) -> None:
    app.projection(policy=PARK)(publisher(wire))
    wire.refused, wire.says_which = {12}, says_which
    append(app, 1, 11, 21, 12, 22, 13, 2, 14)
    app.catch_up()
    assert wire.numbers == [1, 11, 21, 22, 2]
    items = [(item.event_type, item.status, item.error_type) for item in app.queue.list()]
    assert items == [
        ("n12", "dead", "ValueError"),
        ("n13", "pending", None),
        ("n14", "pending", None),
    ]
    wire.refused.clear()
    app.queue.requeue(QueueSelection(status="dead"), by="me")
    append(app, 15)
    app.catch_up()
    assert wire.numbers == [1, 11, 21, 22, 2, 12, 13, 14, 15]
    assert not app.queue.list()


def test_without_a_policy_it_stops_there(app: App, wire: Wire) -> None:
    app.projection(publisher(wire))
    wire.refused = {2}
    append(app, 1, 2, 3)
    with pytest.raises(ProjectionFaulted, match="too odd"):
        app.catch_up()
    assert wire.numbers == [1]


def test_what_nobody_expected_stops_it(app: App, wire: Wire) -> None:
    app.projection(policy=PARK)(publisher(wire))

    def at_end() -> None:
        raise KeyError("whatever")

    wire.at_end = at_end
    append(app, 1, 2, 3)
    with pytest.raises(ProjectionFaulted, match="whatever"):
        app.catch_up()
    assert (wire.numbers, wire.tried, app.queue.list()) == ([], [3], [])


def test_a_fallback_has_the_transaction(app: App, store_url: str, wire: Wire) -> None:
    mark = "?" if store_url.startswith("sqlite") else "%s"
    called: list[int] = []

    def fall(event: Event[Any], tx: Tx) -> None:
        tx.execute(f"INSERT INTO fallen VALUES ({mark})", (event.position,))
        tx.after_commit(lambda: called.append(event.position))

    app.projection(policy=Policy(on_error=Park(), fallback=fall))(publisher(wire))
    wire.refused = {2}
    append(app, 1, 2, 3)
    app.catch_up()
    assert wire.numbers == [1, 3]
    assert execute(store_url, "SELECT n FROM fallen") == [(2,)]
    assert called == [2]


def test_it_never_gives_up_unless_it_is_told_to(app: App, wire: Wire) -> None:
    app.projection(publisher(wire))
    (definition,) = app._catalog
    assert definition.poll == Poll.patient()


def test_an_outbox_is_not_for_publishers(app: App, wire: Wire) -> None:
    with pytest.raises(ConfigError, match="without delivery"):
        app.projection(delivery="outbox")(publisher(wire))
    with pytest.raises(ConfigError, match="from the log"):
        app.sink()(publisher(wire))
