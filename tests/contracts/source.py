"""What a source promises: events in order, and nothing smaller later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from uuid import UUID

import pytest

from holdfast.model.event import RawEvent
from holdfast.runtime.store.source import Source
from tests.contracts.samples import WAIT_SECONDS

FOR_EVER_SECONDS = 3_600.0
"""A wait that is never ended by its time: the test would be ended by its own."""

WRITERS = 4
APPENDS = 25


class SourceContract:
    """Needs fixtures `source`, on an empty feed, and `add`, which adds so many events to it.

    `add` returns the ids of the new events in their order, when they are there to be read. It may
    be called from many threads; `source` is used by one.
    """

    @pytest.fixture
    def source(self) -> Source:
        raise NotImplementedError

    @pytest.fixture
    def add(self) -> Callable[[int], list[UUID]]:
        raise NotImplementedError

    def test_an_empty_feed(self, source: Source) -> None:
        chunk = source.read(0, 10)
        assert (list(chunk.events), chunk.held, source.head()) == ([], False, 0)

    def test_events_come_in_order(self, source: Source, add: Callable[[int], list[UUID]]) -> None:
        ids = [*add(3), *add(1), *add(2)]
        events = source.read(0, 100).events
        assert [event.id for event in events] == ids
        assert all(a.position < b.position for a, b in pairwise(events))
        assert events[0].position > 0
        assert source.head() == events[-1].position

    def test_reading_in_chunks_is_reading_all(
        self, source: Source, add: Callable[[int], list[UUID]]
    ) -> None:
        ids = [id_ for count in (1, 5, 2, 5) for id_ in add(count)]
        for limit in (1, 2, 3, 13, 14):
            assert [event.id for event in _read_on(source, limit)] == ids

    def test_reading_again_gives_the_same(
        self, source: Source, add: Callable[[int], list[UUID]]
    ) -> None:
        add(4)
        first = source.read(0, 10).events
        assert list(source.read(0, 10).events) == list(first)
        assert list(source.read(first[1].position, 10).events) == list(first[2:])
        assert list(source.read(first[3].position, 10).events) == []
        assert list(source.read(first[3].position + 1_000, 10).events) == []

    def test_an_event_carries_its_text(
        self, source: Source, add: Callable[[int], list[UUID]]
    ) -> None:
        add(1)
        (event,) = source.read(0, 10).events
        assert isinstance(event, RawEvent)
        assert event.data.startswith("{")
        assert event.metadata.startswith("{")
        assert event.version == 1
        assert event.recorded_at.tzinfo is not None

    def test_a_wait_ends_in_time(self, source: Source) -> None:
        source.read(0, 10)
        source.wait(0.01)

    def test_no_news_is_missed_between_reading_and_waiting(
        self, source: Source, add: Callable[[int], list[UUID]]
    ) -> None:
        source.read(0, 10)
        add(1)
        source.wait(FOR_EVER_SECONDS)
        assert len(source.read(0, 10).events) == 1

    def test_news_ends_a_wait(self, source: Source, add: Callable[[int], list[UUID]]) -> None:
        source.read(0, 10)
        thread = threading.Thread(target=add, args=(1,))
        thread.start()
        while not source.read(0, 10).events:
            source.wait(FOR_EVER_SECONDS)
        thread.join(WAIT_SECONDS)

    def test_nothing_smaller_appears_later(
        self, source: Source, add: Callable[[int], list[UUID]]
    ) -> None:
        def write(_: int) -> list[UUID]:
            return [id_ for n in range(APPENDS) for id_ in add(1 + n % 3)]

        seen: list[RawEvent] = []
        with ThreadPoolExecutor(WRITERS) as pool:
            writers = [pool.submit(write, n) for n in range(WRITERS)]
            while not all(writer.done() for writer in writers):
                seen += _read_on(source, 7, after=seen[-1].position if seen else 0)
        seen += _read_on(source, 7, after=seen[-1].position if seen else 0)
        assert all(a.position < b.position for a, b in pairwise(seen))
        written = [id_ for writer in writers for id_ in writer.result()]
        assert len(seen) == len(written)
        assert {event.id for event in seen} == set(written)


def _read_on(source: Source, limit: int, *, after: int = 0) -> list[RawEvent]:
    """Everything after a position, at most `limit` events at a time."""
    found: list[RawEvent] = []
    while True:
        chunk = source.read(found[-1].position if found else after, limit)
        assert len(chunk.events) <= limit
        found += chunk.events
        if chunk.held or len(chunk.events) < limit:
            return found
