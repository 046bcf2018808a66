"""ClosedLanes: what a runner knows of the lanes that are closed."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Limits
from holdfast.model.event import RawEvent
from holdfast.model.lane import Lane
from holdfast.runtime.failure.closed_lanes import ClosedLanes
from holdfast.runtime.store.queue_items import FailureHistory, NewItem, ParkedEvent, Status

AT = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def event_at(position: int, stream: str = "a") -> RawEvent:
    return RawEvent(position, stream, position, str(UUID(int=position)), "t", "{}", "{}", AT)


def entry(
    position: int,
    lane: str = "a",
    status: Status = "dead",
    next_attempt_at: datetime | None = None,
) -> NewItem:
    return NewItem(event_at(position, lane), lane, status, next_attempt_at=next_attempt_at)


def test_no_lane_is_closed() -> None:
    lanes = ClosedLanes({})
    assert not lanes
    assert len(lanes) == 0
    assert lanes.get("a") is None
    assert lanes.next_due() is None
    assert lanes.due(AT) == []


def test_what_is_added_counts_at_once_and_stays_when_it_is_committed() -> None:
    lanes = ClosedLanes({})
    lanes.add(entry(1, status="failed", next_attempt_at=at(5)))
    lanes.add(entry(2, status="pending"))
    assert lanes
    assert lanes.get("a") == Lane(2, at(5))
    assert lanes.changed() == {"a": Lane(2, at(5))}
    lanes.commit()
    assert lanes.get("a") == Lane(2, at(5))
    assert lanes.changed() == {}


def test_a_roll_back_leaves_what_was_committed() -> None:
    lanes = ClosedLanes({"a": Lane(3, None)})
    lanes.add(entry(4, "a", "pending"))
    lanes.add(entry(5, "b"))
    assert len(lanes) == 2
    lanes.roll_back()
    assert len(lanes) == 1
    assert lanes.get("a") == Lane(3, None)
    assert lanes.get("b") is None


def test_what_was_skipped_closes_no_lane() -> None:
    lanes = ClosedLanes({})
    lanes.add(entry(1, status="skipped"))
    lanes.add(entry(2, status="resolved"))
    assert not lanes


def test_what_was_in_the_queue_already_is_not_counted_twice() -> None:
    lanes = ClosedLanes({"a": Lane(1, None)})
    known, new = entry(1, "a", "pending"), entry(2, "a", "pending")
    lanes.add(known)
    lanes.add(new)
    lanes.discount([known, entry(3, "a", "skipped"), entry(4, "unknown", "pending")])
    assert lanes.get("a") == Lane(2, None)


def test_a_closed_lane_has_at_least_one_event() -> None:
    lanes = ClosedLanes({})
    lanes.add(entry(1))
    lanes.discount([entry(1)])
    assert lanes.get("a") == Lane(1, None)


def test_a_lane_has_room_up_to_its_limit() -> None:
    lanes = ClosedLanes({"a": Lane(1, None)})
    limits = Limits(events_per_lane=2, lanes=1)
    assert lanes.overflow("a", limits) is None
    lanes.add(entry(2, "a", "pending"))
    assert "2 events wait in it" in (lanes.overflow("a", limits) or "")
    assert "Limits.events_per_lane" in (lanes.overflow("a", limits) or "")


def test_there_is_room_for_so_many_lanes() -> None:
    lanes = ClosedLanes({"a": Lane(1, None)})
    limits = Limits(lanes=2)
    assert lanes.overflow("b", limits) is None
    lanes.add(entry(2, "b"))
    assert lanes.overflow("b", limits) is None
    assert "2 lanes are closed" in (lanes.overflow("c", limits) or "")
    assert "Limits.lanes" in (lanes.overflow("c", limits) or "")


def test_a_drain_changes_or_opens_a_lane() -> None:
    lanes = ClosedLanes({"a": Lane(3, AT), "b": Lane(1, AT)})
    lanes.set("a", Lane(1, None))
    lanes.set("b", None)
    lanes.set("never closed", None)
    assert lanes.get("a") == Lane(1, None)
    assert lanes.get("b") is None
    assert len(lanes) == 1


def test_due_lanes_come_longest_due_first() -> None:
    lanes = ClosedLanes(
        {
            "late": Lane(1, at(2)),
            "early": Lane(1, at(1)),
            "dead": Lane(1, None),
            "b": Lane(1, at(9)),
        }
    )
    assert lanes.due(at(2)) == ["early", "late"]
    assert lanes.due(at(0)) == []
    assert lanes.next_due() == at(1)


def test_what_is_begun_is_not_due_before_it_is_committed() -> None:
    lanes = ClosedLanes({})
    lanes.add(entry(1, status="failed", next_attempt_at=AT))
    assert lanes.due(AT) == []
    lanes.commit()
    assert lanes.due(AT) == ["a"]


def test_a_head_is_due_by_its_status() -> None:
    def waiting(status: Status, due_at: datetime | None = None) -> ParkedEvent:
        return ParkedEvent(1, status, due_at, 0, event_at(1), FailureHistory())

    assert waiting("pending").is_due(AT)
    assert waiting("failed").is_due(AT)
    assert waiting("failed", AT).is_due(AT)
    assert not waiting("failed", at(1)).is_due(AT)
    assert not waiting("dead").is_due(AT)


names = st.sampled_from("abcd")
steps = st.lists(st.tuples(st.sampled_from(["add", "commit", "roll back"]), names), max_size=40)


@given(steps)
def test_counts_are_those_of_what_was_committed(steps: list[tuple[str, str]]) -> None:
    lanes = ClosedLanes({})
    committed: dict[str, int] = {}
    begun: dict[str, int] = {}
    for position, (step, lane) in enumerate(steps, 1):
        if step == "add":
            lanes.add(entry(position, lane))
            begun[lane] = begun.get(lane, committed.get(lane, 0)) + 1
        elif step == "commit":
            lanes.commit()
            committed |= begun
            begun = {}
        else:
            lanes.roll_back()
            begun = {}
        expected = committed | begun
        assert len(lanes) == len(expected)
        assert {n: known.events for n in "abcd" if (known := lanes.get(n))} == expected


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, Lane | None]]:
    """Lanes that are closed, wait for a person, are due at some time, or are opened."""
    times = st.none() | st.integers(0, 5).map(at)
    lane = st.sampled_from("abcd")
    known = st.none() | times.map(lambda due_at: Lane(1, due_at))
    return draw(st.lists(st.tuples(lane, known), max_size=30))


@given(known=changes(), following=changes())
def test_what_is_due_follows_every_change(
    known: list[tuple[str, Lane | None]], following: list[tuple[str, Lane | None]]
) -> None:
    model = {name: lane for name, lane in known if lane is not None}
    lanes = ClosedLanes(model)
    for name, lane in following:
        lanes.set(name, lane)
        model.pop(name, None)
        if lane is not None:
            model[name] = lane
        times = sorted((m.due_at, n) for n, m in model.items() if m.due_at is not None)
        assert lanes.next_due() == min((due_at for due_at, _ in times), default=None)
        assert lanes.due(at(3)) == [n for due_at, n in times if due_at <= at(3)]


@given(known=changes(), parked=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5))))
def test_what_is_committed_is_due_and_what_is_rolled_back_is_not(
    known: list[tuple[str, Lane | None]], parked: list[tuple[str, int]]
) -> None:
    closed = {name: lane for name, lane in known if lane is not None}
    lanes = ClosedLanes(closed)
    before = lanes.next_due()
    for position, (name, seconds) in enumerate(parked, start=1):
        lanes.add(entry(position, name, "failed", at(seconds)))
    lanes.roll_back()
    assert lanes.next_due() == before
    for position, (name, seconds) in enumerate(parked, start=1):
        lanes.add(entry(position, name, "failed", at(seconds)))
    lanes.commit()
    new = [at(seconds) for name, seconds in dict(reversed(parked)).items() if name not in closed]
    times = [*new, *([before] if before is not None else [])]
    assert lanes.next_due() == min(times, default=None)


def test_many_lanes_are_looked_up_at_once() -> None:
    lanes = ClosedLanes({"a": Lane(1, None)})
    assert lanes.are_open(["b", "c", "b"])
    assert lanes.are_open([])
    assert not lanes.are_open(["b", "a"])
    lanes.add(entry(2, "c"))
    assert not lanes.are_open(["b", "c"])
    lanes.roll_back()
    assert lanes.are_open(["b", "c"])
