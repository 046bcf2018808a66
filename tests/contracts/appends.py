"""What an append promises: all or nothing, at the right version, and once for the same ids."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.errors import AppendError, ConcurrencyError, HoldfastError
from holdfast.model.event import Appended, NewEvent
from holdfast.sql.journal.journal import Journal
from tests.contracts.samples import Counted, counted

STREAM_NAMES = [
    "account-1",
    'it\'s "quoted" `thrice`',
    "back\\slash % percent %s :name ? $1",
    "línea größe 帳戶 حساب",
    "👩‍👩‍👧‍👦 \U0001f4a1",
    "e\u0301 and \u00e9",
    " leading, trailing and a\nnew line\t",
    "x" * 512,
    "\U0001f4a1" * 512,
]
REFUSED_STREAM_NAMES: list[object] = [
    "",
    "x" * 513,
    "x" * 1_000,
    "nul\0inside",
    "\0",
    "lone \ud800 surrogate",
    None,
    17,
    b"bytes",
]


class AppendContract:
    """Needs a fixture `journal`: a journal on an empty database."""

    @pytest.fixture
    def journal(self) -> Journal:
        raise NotImplementedError

    def test_an_append_numbers_its_events(self, journal: Journal) -> None:
        first = journal.append("a", [counted(1), counted(2)])
        other = journal.append("b", [counted(3)])
        second = journal.append("a", [Counted(4), counted(5)])
        assert (first.stream, first.version, len(first.positions)) == ("a", 2, 2)
        assert (other.version, second.version) == (1, 4)
        positions = [*first.positions, *other.positions, *second.positions]
        assert positions == sorted(set(positions))
        assert positions[0] > 0
        assert second.position == second.positions[-1]
        assert [(e.position, e.stream, e.version, e.type, e.data) for e in journal.read()] == [
            (positions[0], "a", 1, "Counted", Counted(1)),
            (positions[1], "a", 2, "Counted", Counted(2)),
            (positions[2], "b", 1, "Counted", Counted(3)),
            (positions[3], "a", 3, "Counted", Counted(4)),
            (positions[4], "a", 4, "Counted", Counted(5)),
        ]

    def test_many_events_in_one_append_keep_their_order(self, journal: Journal) -> None:
        appended = journal.append("a", [counted(n) for n in range(1_500)])
        assert appended.version == 1_500
        assert list(appended.positions) == sorted(set(appended.positions))
        assert [event.data["n"] for event in journal.read_stream("a")] == list(range(1_500))

    @pytest.mark.parametrize("text", ["a\0b", "\\\0", {"\0": 1}])
    def test_text_with_a_nul_is_refused(self, journal: Journal, text: object) -> None:
        event = NewEvent({"text": text}, type="Said")
        with pytest.raises(AppendError, match=r"'Said': its data has text with a NUL.*remove it"):
            journal.append("a", [counted(1), event])
        with pytest.raises(AppendError, match="'Counted': its metadata has text with a NUL"):
            journal.append("a", [counted(1)], metadata={"text": text})
        assert list(journal.read()) == []
        journal.append("a", [NewEvent({"text": "\\u0000"}, type="Said")])
        assert [event.data for event in journal.read()] == [{"text": "\\u0000"}]

    def test_no_stream_and_exact_versions_are_taken(self, journal: Journal) -> None:
        assert journal.append("a", [counted(1)], expected_version=0).version == 1
        assert journal.append("a", [counted(2), counted(3)], expected_version=1).version == 3
        assert journal.append("a", [counted(4)], expected_version=None).version == 4
        assert journal.stream_version("a") == 4
        assert journal.stream_version("nothing") == 0

    @pytest.mark.parametrize("expected", [0, 1, 3, 2**62])
    def test_another_version_is_refused(self, journal: Journal, expected: int) -> None:
        journal.append("a", [counted(1), counted(2)])
        with pytest.raises(ConcurrencyError) as caught:
            journal.append("a", [counted(3)], expected_version=expected)
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == (
            "a",
            expected,
            2,
        )
        assert f"expected {expected}" in str(caught.value)
        assert "version 2" in str(caught.value)
        assert _numbers(journal) == [1, 2]

    def test_an_expected_stream_that_is_not_there_is_refused(self, journal: Journal) -> None:
        with pytest.raises(ConcurrencyError) as caught:
            journal.append("a", [counted(1)], expected_version=7)
        assert (caught.value.expected, caught.value.actual) == (7, 0)
        assert journal.head() == 0

    @pytest.mark.parametrize("expected", [-1, 1.5, "1", True])
    def test_a_senseless_version_is_refused(self, journal: Journal, expected: Any) -> None:
        with pytest.raises(AppendError, match="expected_version"):
            journal.append("a", [counted(1)], expected_version=expected)
        assert journal.head() == 0

    @pytest.mark.parametrize("name", STREAM_NAMES, ids=lambda name: ascii(name)[:20])
    def test_a_stream_name_comes_back_to_the_letter(self, journal: Journal, name: str) -> None:
        journal.append(name, [counted(1)], expected_version=0)
        journal.append(name, [counted(2)], expected_version=1)
        journal.append(name[:-1] + "!", [counted(3)], expected_version=0)
        assert [e.stream for e in journal.read()] == [name, name, name[:-1] + "!"]
        assert [e.data["n"] for e in journal.read_stream(name)] == [1, 2]
        assert journal.stream_version(name) == 2

    @pytest.mark.parametrize("name", REFUSED_STREAM_NAMES, ids=lambda name: ascii(name)[:20])
    def test_an_impossible_stream_name_is_refused(self, journal: Journal, name: Any) -> None:
        with pytest.raises(AppendError, match="stream name"):
            journal.append(name, [counted(1)])
        with pytest.raises(AppendError, match="stream name"):
            list(journal.read_stream(name))
        assert journal.head() == 0

    @pytest.mark.parametrize("name", ["", "*", "t" * 256, "nul\0", "\udfff"])
    def test_an_impossible_type_name_is_refused(self, journal: Journal, name: str) -> None:
        with pytest.raises(AppendError, match="event type"):
            journal.append("a", [counted(0), NewEvent({}, type=name)])
        assert journal.head() == 0

    def test_names_that_differ_in_case_or_accent_are_different(self, journal: Journal) -> None:
        names = ["a", "A", "e\u0301", "\u00e9", "ß", "ss", "a "]
        for name in names:
            journal.append(name, [counted(1)], expected_version=0)
        assert [journal.stream_version(name) for name in names] == [1] * len(names)

    @pytest.mark.parametrize("events", [[], (), "Counted", {"n": 1}, 17, None, iter([1])])
    def test_what_is_no_list_of_events_is_refused(self, journal: Journal, events: Any) -> None:
        with pytest.raises(AppendError):
            journal.append("a", events)
        assert journal.head() == 0

    def test_too_many_events_are_refused(self, journal: Journal) -> None:
        with pytest.raises(AppendError, match="10,000"):
            journal.append("a", [counted(1)] * 10_001)
        assert journal.head() == 0

    @pytest.mark.parametrize(
        "payload", [{"n": 1}, NewEvent({"n": {1, 2}}, type="X"), NewEvent(object()), object(), "x"]
    )
    def test_what_can_not_be_stored_is_refused(self, journal: Journal, payload: Any) -> None:
        with pytest.raises(HoldfastError) as caught:
            journal.append("a", [counted(1), payload])
        assert str(caught.value)
        assert journal.head() == 0

    def test_a_payload_over_the_limit_is_refused(self, journal: Journal) -> None:
        fits = NewEvent({"text": "x" * 900_000}, type="Large")
        too_large = NewEvent({"text": "x" * 1_000_000}, type="Large")
        with pytest.raises(AppendError, match="1,000,000"):
            journal.append("a", [fits, too_large])
        assert journal.head() == 0
        journal.append("a", [fits])
        assert next(iter(journal.read())).data == fits.data

    def test_metadata_counts_towards_the_limit(self, journal: Journal) -> None:
        with pytest.raises(AppendError, match="1,000,000"):
            journal.append("a", [counted(1)], metadata={"text": "x" * 1_000_000})
        assert journal.head() == 0

    def test_metadata_is_merged_and_the_events_own_wins(self, journal: Journal) -> None:
        own = NewEvent({"n": 1}, type="Counted", metadata={"who": "me", "why": [1, {"a": None}]})
        journal.append("a", [own, counted(2)], metadata={"who": "all", "trace": "x\u0001y"})
        assert [dict(event.metadata) for event in journal.read()] == [
            {"who": "me", "trace": "x\u0001y", "why": [1, {"a": None}]},
            {"who": "all", "trace": "x\u0001y"},
        ]

    def test_the_same_ids_again_return_the_first_result(self, journal: Journal) -> None:
        events = [counted(n, id=uuid4()) for n in (1, 2)]
        first = journal.append("a", events, expected_version=0)
        journal.append("a", [counted(3)])
        assert journal.append("a", events, expected_version=0) == first
        assert journal.append("a", events) == first
        assert journal.append("a", events, expected_version=3) == first
        assert _numbers(journal) == [1, 2, 3]

    def test_the_same_ids_under_any_version(self, journal: Journal) -> None:
        journal.append("a", [counted(1)])
        events = [counted(2, id=uuid4())]
        first = journal.append("a", events)
        assert journal.append("a", events) == first == Appended("a", 2, first.positions)
        assert _numbers(journal) == [1, 2]

    @pytest.mark.parametrize("expected", [None, 0, 2])
    def test_ids_that_are_partly_known_are_refused(
        self, journal: Journal, expected: int | None
    ) -> None:
        one, two, three = (counted(n, id=uuid4()) for n in (1, 2, 3))
        journal.append("a", [one, two])
        for events in ([two, three], [three, two], [counted(4), one], [two, one]):
            with pytest.raises(AppendError, match="ids") as caught:
                journal.append("a", events, expected_version=expected)
            assert not isinstance(caught.value, ConcurrencyError)
        assert _numbers(journal) == [1, 2]

    @pytest.mark.parametrize("expected", [None, 0])
    def test_an_id_of_another_stream_is_refused(
        self, journal: Journal, expected: int | None
    ) -> None:
        event = counted(1, id=uuid4())
        journal.append("a", [event])
        with pytest.raises(AppendError, match="ids"):
            journal.append("b", [event], expected_version=expected)
        assert journal.stream_version("b") == 0

    def test_the_same_id_twice_in_one_append_is_refused(self, journal: Journal) -> None:
        event = counted(1, id=UUID(int=7))
        with pytest.raises(AppendError, match="twice"):
            journal.append("a", [event, event])
        assert journal.head() == 0

    def test_an_id_that_is_no_uuid_is_refused(self, journal: Journal) -> None:
        for wrong in ("6f2e", str(uuid4()), 17):
            given: Any = wrong
            with pytest.raises(AppendError, match=r"not a UUID; pass uuid\.UUID\("):
                journal.append("a", [counted(1, id=given)])
        assert journal.head() == 0

    def test_asyncio_callers_get_the_same(self, journal: Journal) -> None:
        event = counted(1, id=uuid4())

        async def append() -> tuple[Appended, Appended]:
            first = await journal.append_async("a", [event], expected_version=0)
            return first, await journal.append_async("a", [event], metadata={"again": True})

        first, again = asyncio.run(append())
        assert first == again
        assert first.version == 1
        with pytest.raises(ConcurrencyError):
            asyncio.run(journal.append_async("a", [counted(2)], expected_version=0))
        assert _numbers(journal) == [1]

    def test_many_asyncio_appends_at_once_are_all_there(self, journal: Journal) -> None:
        async def append_all() -> list[Appended]:
            return await asyncio.gather(
                *(journal.append_async(f"s{n % 3}", [counted(n)]) for n in range(30))
            )

        results = asyncio.run(append_all())
        assert sorted(_numbers(journal)) == list(range(30))
        assert len({result.position for result in results}) == 30


def _numbers(journal: Journal) -> list[int]:
    return [event.data["n"] for event in journal.read()]
