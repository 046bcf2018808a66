"""The promises, checked once for the journal, shards, lanes, the outbox and Kafka.

At every moment, in one snapshot:

- nothing is lost: each event that a projection has passed is applied, in the queue, or purged;
- nothing takes effect twice: it is in one of these places, and applied once;
- nothing is out of order: events are applied in order within a lane, and none passes a parked one;
- rows, counts and sums are those of the events that were applied;
- the queue and the rows of closed lanes agree.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tests.world.app import STREAM_KINDS
from tests.world.tables import (
    Feeds,
    Item,
    LaneRow,
    Query,
    read_applied,
    read_feeds,
    read_journal,
    read_lane_rows,
    read_projections,
    read_queue,
    snapshot,
)

OUTSTANDING = ("pending", "processing", "failed", "dead")


@dataclass(frozen=True, slots=True)
class Found:
    """What the tables say of a projection, as far as it is right."""

    position: int
    head: int
    epoch: int = field(compare=False)
    """A runner that leads again raises it, and changes nothing else."""
    state: str
    unclean_ends: int
    mark_position: int | None
    left: int
    """How many events, or positions of a backfill, are still to come."""
    lanes: dict[int, str]
    """Each event's lane, by its position."""
    applied: list[int]
    """In the order in which they were applied, within each lane."""
    statuses: dict[int, str]
    """What is in the queue, by position."""
    attempts: dict[int, int]
    due_at: dict[str, datetime | None]
    """The closed lanes, and when they are to be tried."""
    tokens: dict[str, str]
    """The lanes that are claimed."""

    @property
    def outstanding(self) -> list[int]:
        return self.with_status(*OUTSTANDING)

    def with_status(self, *statuses: str) -> list[int]:
        return sorted(at for at, status in self.statuses.items() if status in statuses)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left for a worker to do."""
        heads: dict[str, str] = {}
        for at in self.outstanding:
            heads.setdefault(self.lanes[at], self.statuses[at])
        return self.left == 0 and all(status == "dead" for status in heads.values())


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check of all projections has found to be right."""

    events: int
    found: dict[str, Found]

    @property
    def positions(self) -> dict[str, int]:
        return {name: found.position for name, found in self.found.items()}

    @property
    def epochs(self) -> dict[str, int]:
        return {name: found.epoch for name, found in self.found.items()}

    def __str__(self) -> str:
        return f"{self.events} events; positions {self.positions}, epochs {self.epochs}"


def check_all(url: str, *, complete: bool = False) -> Checked:
    """Checks every projection that has run; `complete`: also that nothing is left to do."""

    def check(query: Query) -> Checked:
        names = sorted(read_projections(query))
        found = {name: _check(query, name, complete=complete) for name in names}
        return Checked(len(read_journal(query)), found)

    return snapshot(url, check)


def check_one(
    url: str,
    name: str,
    *,
    complete: bool = False,
    now: datetime | None = None,
    purged: Collection[int] = (),
) -> Found:
    """Checks one projection.

    `now`: what the projection's clock shows; None where it goes on by itself. `purged`: events
    that were deleted from the queue after they had been skipped or resolved.
    """
    return snapshot(
        url,
        lambda query: _check(query, name, complete=complete, now=now, purged=frozenset(purged)),
    )


def check_topic(url: str, versions: Mapping[str, int] | None = None) -> int:
    """Checks the projections that read a topic; returns how many lines the ledger has.

    `versions`: also that both have applied each stream up to its version.
    """
    if versions is not None:
        known: dict[str, dict[str, int]] = {name: {} for name in STREAM_KINDS}
        for name, stream, version in snapshot(
            url, lambda query: query("SELECT projection, stream, version FROM holdfast_stream")
        ):
            known[name][stream] = version
        for name, streams in known.items():
            assert streams == versions, f"{name}: {_difference(streams, versions)}"
    checked = check_all(url, complete=versions is not None)
    ledger = checked.found.get("ledger")
    return len(ledger.applied) if ledger else 0


def _difference(found: Mapping[str, int], expected: Mapping[str, int]) -> dict[str, object]:
    streams = sorted({*found, *expected})
    pairs = {stream: (found.get(stream), expected.get(stream)) for stream in streams}
    return {stream: pair for stream, pair in pairs.items() if pair[0] != pair[1]}


def _check(
    query: Query,
    name: str,
    *,
    complete: bool,
    now: datetime | None = None,
    purged: frozenset[int] = frozenset(),
) -> Found:
    feeds = read_feeds(query, name)
    applied = read_applied(query, name, feeds)
    queue, rows = read_queue(query, name), read_lane_rows(query, name)
    lanes = {at: event.lane(name) for at, event in feeds.events.items()}
    found = _found(feeds, applied, queue, rows, lanes)

    _check_versions(feeds)
    _check_order(applied, lanes, found)
    _check_places(feeds, queue, purged, found)
    if feeds.is_topic:
        assert not queue, f"{name}: nothing fails on a topic; {queue}"
        assert not rows, f"{name}: nothing waits on a topic; {rows}"
    else:
        _check_lanes(feeds, applied, queue, rows, now, found)
    if complete:
        assert feeds.is_at_head, f"{name} is at {feeds.checkpoints}; {found}"
        assert feeds.left == 0, found
        assert not found.outstanding, found
        assert not rows, f"{sorted(rows)} are closed, and nothing waits; {found}"
    return found


def _found(
    feeds: Feeds,
    applied: dict[str, list[int]],
    queue: dict[int, Item],
    rows: dict[str, LaneRow],
    lanes: dict[int, str],
) -> Found:
    checkpoints = feeds.checkpoints
    worst = min(checkpoints, key=lambda each: each.position, default=None)
    return Found(
        position=worst.position if worst else 0,
        head=max(feeds.events, default=0),
        epoch=max((each.epoch for each in checkpoints), default=0),
        state=worst.state if worst else "stopped",
        unclean_ends=worst.unclean_ends if worst else 0,
        mark_position=worst.mark_position if worst else None,
        left=feeds.left,
        lanes=lanes,
        applied=[at for positions in applied.values() for at in positions],
        statuses={at: item.status for at, item in queue.items()},
        attempts={at: item.attempts for at, item in queue.items()},
        due_at={lane: row.due_at for lane, row in rows.items()},
        tokens={lane: row.token for lane, row in rows.items() if row.token is not None},
    )


def _check_versions(feeds: Feeds) -> None:
    """Versions count 1, 2, 3… within a stream, in the order of positions."""
    last: Counter[str] = Counter()
    for at, event in sorted(feeds.events.items()):
        stream, version = event.stream, event.version
        assert version == last[stream] + 1, f"{stream} {version} at {at} is out of order"
        last[stream] = version


def _check_order(applied: dict[str, list[int]], lanes: dict[int, str], found: Found) -> None:
    doubled = sorted(at for at, times in Counter(found.applied).items() if times > 1)
    assert not doubled, f"applied more than once: {doubled}; {found}"
    for lane, positions in applied.items():
        assert positions == sorted(positions), f"lane {lane!r} is out of order: {positions}"
        strangers = [at for at in positions if lanes.get(at) != lane]
        assert not strangers, f"lane {lane!r} has other lanes' events: {strangers}"


def _check_places(
    feeds: Feeds, queue: dict[int, Item], purged: frozenset[int], found: Found
) -> None:
    """Each event that was passed is in one place, and the checkpoints count what is applied."""
    applied = set(found.applied)
    for at in feeds.events:
        places = [at in applied, at in queue, at in purged]
        assert any(places) or at not in feeds.passed, f"the event at {at} is lost; {found}"
        assert sum(places) <= 1, f"the event at {at} is in {places} (rows, queue, purged); {found}"
    if feeds.is_outbox:
        return
    ahead = sorted(applied - feeds.passed)
    assert not ahead, f"applied beyond the checkpoints {feeds.checkpoints}: {ahead}"
    processed = sum(each.processed for each in feeds.checkpoints)
    assert processed == len(applied), f"{processed} are counted, not {len(applied)}; {found}"


def _check_lanes(
    feeds: Feeds,
    applied: dict[str, list[int]],
    queue: dict[int, Item],
    rows: dict[str, LaneRow],
    now: datetime | None,
    found: Found,
) -> None:
    """The rows of closed lanes say what the queue holds, and nothing has passed a head."""
    waiting: dict[str, list[int]] = {}
    for at, item in sorted(queue.items()):
        assert item.lane == found.lanes[at], f"the event at {at} waits in {item.lane!r}; {found}"
        if item.status in OUTSTANDING:
            waiting.setdefault(item.lane, []).append(at)
    for lane, positions in waiting.items():
        assert lane in rows, f"lane {lane!r} is open, and {positions} wait in it; {found}"
        row, head = rows[lane], queue[positions[0]]
        told = f"lane {lane!r}: {row}, head {positions[0]} {head}; {found}"
        passed = [at for at in applied.get(lane, []) if at > positions[0]]
        assert not passed, f"{passed} passed the head; {told}"
        assert row.events == len(positions), f"{positions} wait; {told}"
        assert (row.due_at is None) == (head.status == "dead"), told
        assert (row.token is not None) == (head.status == "processing"), told
        behind = [at for at in positions[1:] if queue[at].status == "processing"]
        assert not behind, f"{behind} are tried before their time; {told}"
        if not feeds.is_outbox and row.due_at is not None:
            if head.status == "failed" and head.next_attempt_at is not None:
                assert row.due_at == head.next_attempt_at, told
            else:
                assert now is None or row.due_at <= now, told
    for lane in rows.keys() - waiting.keys():
        # A drain that did not look further leaves the lane due; the next one opens it.
        due_at = rows[lane].due_at
        assert not feeds.is_outbox, f"lane {lane!r} is there, and empty; {found}"
        assert due_at is not None, f"lane {lane!r} is closed for ever, and empty; {found}"
        assert now is None or due_at <= now, f"lane {lane!r} is closed, and empty; {found}"
