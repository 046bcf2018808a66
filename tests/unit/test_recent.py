"""Reads that runners of a process share: the same as if each had read for itself."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.event import RawEvent
from holdfast.runtime.store.source import Chunk
from holdfast.runtime.wake import WakeSignal
from holdfast.sql.store import shared_reads as module
from holdfast.sql.store.shared_reads import SharedReads
from tests.support.postgres import wait_until

LIMIT = 3


class Journal:
    """Events at positions, and how often they were read."""

    def __init__(self, *positions: int) -> None:
        self.positions = list(positions)
        self.reads = 0

    def reading(self, after: int, *, held: bool = False) -> Callable[[], Chunk]:
        def read() -> Chunk:
            self.reads += 1
            found = [p for p in self.positions if p > after][:LIMIT]
            return Chunk([event(position) for position in found], held)

        return read


def event(position: int) -> RawEvent:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return RawEvent(position, "a", position, str(uuid4()), "Counted", "{}", "{}", at)


def read(recent: SharedReads, journal: Journal, after: int, *, held: bool = False) -> list[int]:
    chunk, _ = recent.read(after, LIMIT, journal.reading(after, held=held))
    return [found.position for found in chunk.events]


@pytest.fixture
def bell() -> WakeSignal:
    return WakeSignal()


@pytest.fixture
def recent(bell: WakeSignal) -> SharedReads:
    return SharedReads(bell)


def test_what_one_has_read_the_others_have(recent: SharedReads) -> None:
    journal = Journal(1, 2, 4, 5, 6, 7)
    for _ in range(3):
        assert [read(recent, journal, after) for after in (0, 4)] == [[1, 2, 4], [5, 6, 7]]
    assert journal.reads == 2


def test_who_is_a_little_ahead_has_the_rest_of_the_end(recent: SharedReads) -> None:
    journal = Journal(1, 3)
    assert read(recent, journal, 0) == [1, 3]
    assert [read(recent, journal, after) for after in (1, 2)] == [[3], [3]]
    assert journal.reads == 1
    assert read(recent, journal, 3) == []
    assert journal.reads == 2


def test_the_rest_of_what_is_not_the_end_is_read(recent: SharedReads) -> None:
    """It would look like the end of the journal."""
    journal = Journal(1, 2, 3, 4)
    assert read(recent, journal, 0) == [1, 2, 3]
    assert read(recent, journal, 1) == [2, 3, 4]


def test_another_limit_gets_no_more_than_it_asks_for(recent: SharedReads) -> None:
    journal = Journal(1, 2)
    assert read(recent, journal, 0) == [1, 2]
    chunk, _ = recent.read(0, 1, lambda: Chunk([event(1)]))
    assert [found.position for found in chunk.events] == [1]


def test_who_reads_seldom_has_all_that_others_have_read(
    recent: SharedReads, bell: WakeSignal
) -> None:
    """One by one they would come too slowly, for ever."""
    journal, last = Journal(), 0
    for position in (1, 2, 4):
        journal.positions.append(position)
        bell.ring()
        assert read(recent, journal, last) == [position]
        last = position
    for after, expected in ((0, [1, 2, 4]), (1, [2, 4]), (3, [4])):
        chunk, rings = recent.read(after, LIMIT, journal.reading(after))
        assert ([found.position for found in chunk.events], rings) == (expected, bell.rings)
    assert journal.reads == 3
    bell.ring()
    assert recent.read(0, LIMIT, journal.reading(0))[1] == bell.rings - 1


def test_what_is_kept_in_pieces_ends_at_the_limit(recent: SharedReads) -> None:
    journal = Journal()
    for position in range(1, 6):
        journal.positions.append(position)
        assert read(recent, journal, position - 1) == [position]
    reads = journal.reads
    assert [read(recent, journal, after) for after in (0, 1, 3)] == [[1, 2, 3], [2, 3, 4], [4, 5]]
    assert journal.reads == reads


def test_a_full_chunk_behind_others_is_not_the_end(recent: SharedReads, bell: WakeSignal) -> None:
    journal = Journal(1)
    assert read(recent, journal, 0) == [1]
    bell.ring()
    journal.positions += [2, 3, 4, 5]
    assert read(recent, journal, 1) == [2, 3, 4]
    assert read(recent, journal, 0) == [1, 2, 3]
    # The first was the end when it was read, and the bell has rung since.
    chunk, rings = recent.read(0, 9, lambda: Chunk(()))
    assert ([found.position for found in chunk.events], rings) == ([1], 0)


def test_what_is_held_or_nothing_is_not_kept(recent: SharedReads) -> None:
    journal = Journal(1)
    assert [read(recent, journal, 0, held=True) for _ in range(2)] == [[1], [1]]
    assert [read(recent, journal, 1) for _ in range(2)] == [[], []]
    assert journal.reads == 4


def test_rings_since_the_read_are_news(recent: SharedReads, bell: WakeSignal) -> None:
    journal = Journal(1)
    bell.ring()
    _, first = recent.read(0, LIMIT, journal.reading(0))
    bell.ring()
    _, again = recent.read(0, LIMIT, journal.reading(0))
    assert first == again == bell.rings - 1
    assert bell.wait(again, 0)


def test_whoever_is_not_woken_by_rings_reads_on(recent: SharedReads, bell: WakeSignal) -> None:
    journal = Journal(1)
    assert not recent.read(0, LIMIT, journal.reading(0))[0].more
    assert not recent.read(0, LIMIT, journal.reading(0))[0].more
    bell.ring()
    assert recent.read(0, LIMIT, journal.reading(0))[0].more


def test_what_people_have_changed_is_read_again(recent: SharedReads) -> None:
    journal = Journal(1)
    assert read(recent, journal, 0) == [1]
    journal.positions = [2]
    recent.clear()
    assert read(recent, journal, 0) == [2]


def test_little_is_kept(recent: SharedReads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 7)
    journal = Journal(1, 2, 3, 4, 5, 6)
    assert [read(recent, journal, after) for after in (0, 3, 0)] == [
        [1, 2, 3],
        [4, 5, 6],
        [1, 2, 3],
    ]
    assert journal.reads == 3


@pytest.mark.parametrize("outcome", ["read", "failed", "cleared"])
def test_who_comes_meanwhile_waits_for_the_same(recent: SharedReads, outcome: str) -> None:
    journal = Journal(1)
    begun, may_end = threading.Event(), threading.Event()
    found: list[list[int]] = []

    def slow() -> Chunk:
        chunk = journal.reading(0)()
        begun.set()
        may_end.wait(30)
        if outcome == "failed":
            raise OSError
        return chunk

    def first() -> None:
        try:
            recent.read(0, LIMIT, slow)
        except OSError:
            assert outcome == "failed"

    threads = [threading.Thread(target=first)]
    threads[0].start()
    begun.wait(30)
    if outcome == "cleared":
        journal.positions = [2]
        recent.clear()
    for _ in range(2):
        join = threading.Thread(target=lambda: found.append(read(recent, journal, 0)))
        threads.append(join)
        join.start()
        if outcome == "cleared":
            join.join(30)
    may_end.set()
    for thread in threads:
        thread.join(30)
    wait_until(lambda: len(found) == 2, 30, "all to have it")
    assert found == [[2] if outcome == "cleared" else [1]] * 2
    assert journal.reads <= (3 if outcome == "failed" else 2)
    assert read(recent, journal, 0) == ([2] if outcome == "cleared" else [1])


def test_whether_others_have_taken_what_was_read(recent: SharedReads) -> None:
    journal = Journal(1, 2, 3, 4, 5, 6)
    for after in (0, 3):
        read(recent, journal, after)
        assert not recent.is_shared(after + LIMIT)
    read(recent, journal, 0)
    assert [recent.is_shared(through) for through in (3, 6, 7)] == [True, False, False]


def test_whoever_waits_for_a_read_takes_it(recent: SharedReads) -> None:
    journal = Journal(1)
    another = threading.Thread(target=read, args=(recent, journal, 0))

    def slow() -> Chunk:
        another.start()
        wait_until(lambda: recent._flights[0, LIMIT].is_joined, 30, "it to wait")
        return journal.reading(0)()

    recent.read(0, LIMIT, slow)
    another.join(30)
    assert recent.is_shared(1)
    assert journal.reads == 1


@given(
    positions=st.sets(st.integers(1, 60)),
    reads=st.lists(st.integers(0, 60), max_size=40),
)
def test_any_reads_give_what_is_there_however_little_is_kept(
    positions: set[int], reads: list[int]
) -> None:
    """Of reads that overlap, any may be the one that is found, and the oldest go."""
    journal, recent = Journal(*sorted(positions)), SharedReads(WakeSignal())
    event_bytes = module.EVENT_BYTES + len("{}{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT_BYTES", 12 * event_bytes)
        for after in reads:
            found = read(recent, journal, after)
            expected = [p for p in journal.positions if p > after][:LIMIT]
            assert found == expected[: len(found)]
            assert bool(found) == bool(expected)
            assert recent._afters == sorted(recent._by_after)
            assert recent._size_bytes == event_bytes * sum(
                len(kept.chunk.events) for kept in recent._kept
            )
