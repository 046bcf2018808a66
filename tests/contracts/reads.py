"""What reading promises: settled events, in order, to the letter."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from queue import Queue
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from holdfast.model.event import NewEvent
from holdfast.sql.journal.journal import READ_EVENTS, Journal
from tests.contracts.samples import WAIT_SECONDS, counted

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=15,
)
AWKWARD = {
    "\u0001": "\u0001 in text, and \\u0000 with a backslash",
    "numbers": [0, -0.0, 1.0, 10**40, -(10**40), 1e23, 5e-324, 1.7976931348623157e308, 2**63],
    "quotes": "'\"`\\/\b\f\n\r\t\x7f\u2028\ufeff",
    "": {"": [[], {}, None, True, False]},
    "b": 1,
    "a": 2,
    "emoji": "👩‍👩‍👧‍👦",
}


class ReadContract:
    """Needs a fixture `journal`: a journal on an empty database."""

    @pytest.fixture
    def journal(self) -> Journal:
        raise NotImplementedError

    def test_an_empty_journal(self, journal: Journal) -> None:
        assert journal.head() == 0
        assert list(journal.read()) == []
        assert list(journal.read(after=100)) == []
        assert list(journal.read_stream("a")) == []

    def test_reading_after_a_position_and_up_to_a_limit(self, journal: Journal) -> None:
        total = 2 * READ_EVENTS + 300
        positions = journal.append("a", [counted(n) for n in range(total)]).positions
        assert journal.head() == positions[-1]

        def read(*, skip: int, limit: int | None) -> list[int]:
            after = positions[skip - 1] if skip else 0
            return [event.data["n"] for event in journal.read(after=after, limit=limit)]

        assert read(skip=0, limit=None) == list(range(total))
        assert read(skip=0, limit=READ_EVENTS) == list(range(READ_EVENTS))
        assert read(skip=7, limit=READ_EVENTS + 1) == list(range(7, READ_EVENTS + 8))
        assert read(skip=0, limit=10 * total) == list(range(total))
        assert read(skip=total - 1, limit=5) == [total - 1]
        assert read(skip=total, limit=5) == []
        assert read(skip=0, limit=0) == []

    def test_reading_a_stream_after_a_version_and_up_to_a_limit(self, journal: Journal) -> None:
        total = READ_EVENTS + 300
        for stream, start in (("a", 0), ("b", 1_000_000)):
            journal.append(stream, [counted(start + n) for n in range(total)])

        def read(**how: int) -> list[int]:
            return [event.data["n"] for event in journal.read_stream("a", **how)]

        assert read() == list(range(total))
        assert read(after_version=10, limit=3) == [10, 11, 12]
        assert read(after_version=5, limit=READ_EVENTS + 1) == list(range(5, READ_EVENTS + 6))
        assert read(after_version=total) == []
        assert read(limit=0) == []

    def test_an_event_carries_when_it_was_recorded_and_an_id(self, journal: Journal) -> None:
        before = datetime.now(UTC)
        journal.append("a", [counted(1), counted(2)])
        after = datetime.now(UTC)
        events = list(journal.read())
        for event in events:
            assert before <= event.recorded_at <= after
            assert event.recorded_at.utcoffset() == timedelta(0)
        assert len({event.id for event in events}) == 2
        assert list(journal.read_stream("a")) == events

    def test_awkward_data_comes_back_to_the_letter(self, journal: Journal) -> None:
        journal.append("a", [NewEvent(AWKWARD, type="Awkward", metadata=AWKWARD)])
        (event,) = journal.read()
        assert _letters(event.data) == _letters(AWKWARD)
        assert _letters(dict(event.metadata)) == _letters(AWKWARD)

    def test_any_json_comes_back_to_the_letter(self, journal: Journal) -> None:
        @hypothesis.settings(max_examples=60)
        @hypothesis.given(data=st.dictionaries(TEXTS, JSON_VALUES, max_size=5))
        def comes_back(data: dict[str, Any]) -> None:
            appended = journal.append("a", [NewEvent(data, type="Anything", metadata=data)])
            (event,) = journal.read(after=appended.position - 1)
            assert _letters(event.data) == _letters(data)
            assert _letters(dict(event.metadata)) == _letters(data)

        comes_back()

    def test_a_tail_follows_the_journal(self, journal: Journal) -> None:
        first = journal.append("a", [counted(0), counted(1)])
        with _following(journal, after=first.positions[0]) as seen:
            for n in (2, 3, 4):
                assert seen.get(timeout=WAIT_SECONDS) == n - 1
                journal.append(f"s{n}", [counted(n)])
            assert seen.get(timeout=WAIT_SECONDS) == 4

    def test_a_tail_begins_at_the_head(self, journal: Journal) -> None:
        journal.append("a", [counted(1)])
        with _following(journal, after=None) as seen:
            journal.append("a", [counted(2)])
            assert seen.get(timeout=WAIT_SECONDS) == 2
        assert seen.empty()


@contextmanager
def _following(journal: Journal, *, after: int | None) -> Iterator[Queue[int]]:
    """A tail in a thread of its own, which has begun; gives the numbers it sees."""
    begun, end = threading.Event(), threading.Event()
    seen: Queue[int] = Queue()

    def stop() -> bool:
        begun.set()
        return end.is_set()

    def follow() -> None:
        for event in journal.tail(after=after, stop=stop):
            seen.put(event.data["n"])

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        assert begun.wait(WAIT_SECONDS)
        yield seen
    finally:
        end.set()
        journal.wake()
        thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def _letters(value: Any) -> str:
    """Tells 1 from 1.0 and -0.0 from 0.0, and keeps the order of keys."""
    return json.dumps(value)
