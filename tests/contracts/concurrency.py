"""What concurrent appends promise each other: every version once, nothing lost, no gap."""

from __future__ import annotations

import threading
from itertools import chain, pairwise
from uuid import uuid4

import pytest

from holdfast.errors import AppendError, ConcurrencyError
from holdfast.model.event import Appended
from holdfast.sql.journal.journal import Journal
from tests.contracts.samples import WAIT_SECONDS, concurrently, counted

WRITERS = 8
ROUNDS = 12


class ConcurrencyContract:
    """Needs a fixture `journal`: a journal on an empty database."""

    @pytest.fixture
    def journal(self) -> Journal:
        raise NotImplementedError

    def test_exactly_one_writer_wins_each_version(self, journal: Journal) -> None:
        together = threading.Barrier(WRITERS)
        lost: list[tuple[int, int]] = []

        def write(writer: int) -> list[int]:
            won = []
            for version in range(ROUNDS):
                together.wait(WAIT_SECONDS)
                try:
                    journal.append("a", [counted(writer)], expected_version=version)
                except ConcurrencyError as error:
                    lost.append((error.expected, error.actual))
                else:
                    won.append(version + 1)
            return won

        won = concurrently(WRITERS, write)
        assert sorted(chain.from_iterable(won)) == list(range(1, ROUNDS + 1))
        assert sorted(lost) == [(n, n + 1) for n in range(ROUNDS) for _ in range(WRITERS - 1)]
        events = list(journal.read_stream("a"))
        assert [event.version for event in events] == list(range(1, ROUNDS + 1))
        for writer, versions in enumerate(won):
            assert [e.version for e in events if e.data["n"] == writer] == versions

    def test_appends_to_any_version_are_all_there(self, journal: Journal) -> None:
        def write(writer: int) -> list[Appended]:
            return [
                journal.append("a", [counted(writer * 1_000 + n * 2 + m) for m in range(2)])
                for n in range(ROUNDS)
            ]

        results = list(chain.from_iterable(concurrently(WRITERS, write)))
        events = list(journal.read_stream("a"))
        assert [event.version for event in events] == list(range(1, 2 * ROUNDS * WRITERS + 1))
        assert [e.position for e in events] == sorted(e.position for e in events)
        at = {event.position: event for event in events}
        for result in results:
            first, second = (at[position] for position in result.positions)
            assert second.version == first.version + 1 == result.version
            assert second.data["n"] == first.data["n"] + 1
        for writer in range(WRITERS):
            own = [e.data["n"] for e in events if e.data["n"] // 1_000 == writer]
            assert own == [writer * 1_000 + n for n in range(2 * ROUNDS)]

    def test_appends_to_many_streams_are_all_there(self, journal: Journal) -> None:
        def write(writer: int) -> None:
            for n in range(ROUNDS):
                journal.append(f"s{(writer + n) % 5}", [counted(writer * 1_000 + n)])

        concurrently(WRITERS, write)
        events = list(journal.read())
        assert len(events) == ROUNDS * WRITERS
        assert all(b.position > a.position for a, b in pairwise(events))
        for stream in {event.stream for event in events}:
            versions = [event.version for event in events if event.stream == stream]
            assert versions == list(range(1, len(versions) + 1))

    def test_the_same_append_from_many_writers_happens_once(self, journal: Journal) -> None:
        events = [counted(n, id=uuid4()) for n in range(3)]
        results = concurrently(WRITERS, lambda _: journal.append("a", events, expected_version=0))
        assert len(set(results)) == 1
        assert [event.version for event in journal.read()] == [1, 2, 3]

    def test_one_id_in_many_streams_is_taken_by_one(self, journal: Journal) -> None:
        event = counted(1, id=uuid4())

        def write(writer: int) -> bool:
            try:
                journal.append(f"s{writer}", [event])
            except AppendError:
                return False
            return True

        assert sum(concurrently(WRITERS, write)) == 1
        assert len(list(journal.read())) == 1
