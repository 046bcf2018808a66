"""What must hold for the projections of lanes.py when they are delivered from the outbox."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast import App, QueueSelection
from tests.support.lanes import OUTSTANDING, Kind, read_applied, read_lanes
from tests.support.postgres import POLL_SECONDS
from tests.support.worker_checks import Query, snapshot

OUTBOX_KINDS: tuple[Kind, ...] = ("folded", "noted")
"""Those whose lanes are streams."""

PATIENCE_SECONDS = 60.0
"""How long nothing may be applied before a test gives up."""


@dataclass(frozen=True, slots=True)
class OutboxFound:
    """What the tables say, as far as it is right."""

    lanes: dict[int, str]
    """Each event's lane, by its position."""
    applied: list[int]
    """In the order in which they were applied, within each lane."""
    statuses: dict[int, str]
    """What is in the queue, by position."""
    attempts: dict[int, int]
    tokens: dict[str, str]
    """The lanes that are claimed."""
    left: int
    """How many positions the backfill has still to bring."""

    @property
    def outstanding(self) -> list[int]:
        return sorted(p for p, status in self.statuses.items() if status in OUTSTANDING)

    def with_status(self, *statuses: str) -> list[int]:
        return sorted(p for p, status in self.statuses.items() if status in statuses)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left for a worker to do."""
        heads: dict[str, str] = {}
        for at in self.outstanding:
            heads.setdefault(self.lanes[at], self.statuses[at])
        return self.left == 0 and all(status == "dead" for status in heads.values())


def check_outbox(url: str, kind: Kind) -> OutboxFound:
    """Asserts everything that must hold at every moment, in one snapshot."""
    return snapshot(url, lambda query: _check(query, kind))


def check_all_applied(url: str, kind: Kind) -> OutboxFound:
    """Asserts that every event is applied, skipped or resolved, and that no lane is left."""
    found = check_outbox(url, kind)
    assert found.left == 0, found
    assert not found.outstanding, found
    return found


def await_settled(
    url: str, kind: Kind, who: Callable[[], Any], *, requeue: App | None = None
) -> OutboxFound:
    """Waits until nothing is left for a worker to do, as long as events are applied.

    `requeue`: until nothing is left for people either.
    """

    applied, give_up_at = -1, 0.0
    while True:
        if requeue is not None:
            requeue.queue.requeue(QueueSelection(), by="the end", limit=10_000)
        found = check_outbox(url, kind)
        waiting = found.outstanding
        if found.is_settled if requeue is None else not (waiting or found.left):
            return found
        if len(found.applied) > applied:
            applied, give_up_at = len(found.applied), time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() > give_up_at:
            raise TimeoutError(
                f"{applied} of {len(found.lanes)} are applied, and none in {PATIENCE_SECONDS:g} s; "
                f"{len(waiting)} wait: {waiting[:20]}, claimed: {found.tokens}; {who()}"
            )
        time.sleep(POLL_SECONDS)


def _check(query: Query, kind: Kind) -> OutboxFound:
    lanes = read_lanes(query, kind)
    applied = read_applied(query, kind)
    order = [at for positions in applied.values() for at in positions]
    queue = query(
        "SELECT position, lane, status, attempts FROM holdfast_queue"
        f" WHERE projection = '{kind}' ORDER BY position"
    )
    rows = {
        lane: (events, due_at, token)
        for lane, events, due_at, token in query(
            f"SELECT lane, events, due_at, token FROM holdfast_lane WHERE projection = '{kind}'"
        )
    }
    until, position = _backfill(query, kind)
    found = OutboxFound(
        lanes=lanes,
        applied=order,
        statuses={at: status for at, _, status, _ in queue},
        attempts={at: attempts for at, *_, attempts in queue},
        tokens={lane: token for lane, (_, _, token) in rows.items() if token is not None},
        left=len(lanes) if until is None else max(0, until - position),
    )

    doubled = sorted(at for at, times in Counter(order).items() if times > 1)
    assert not doubled, f"applied more than once: {doubled}; {found}"
    for lane, positions in applied.items():
        assert positions == sorted(positions), f"lane {lane!r} is out of order: {positions}"
        strangers = [at for at in positions if lanes.get(at) != lane]
        assert not strangers, f"lane {lane!r} has other lanes' events: {strangers}"
    done = set(order)
    for at in lanes:
        is_due = until is not None and (at <= position or at > until)
        places = [at in done, at in found.statuses]
        assert sum(places) <= 1, f"the event at {at} is applied and in the queue; {found}"
        assert any(places) or not is_due, f"the event at {at} is lost; {found}"

    waiting: dict[str, list[int]] = {}
    for at, lane, status, _ in queue:
        assert lane == lanes[at], f"the event at {at} waits in lane {lane!r}; {found}"
        if status in OUTSTANDING:
            waiting.setdefault(lane, []).append(at)
    assert rows.keys() == waiting.keys(), f"lanes {sorted(rows)}; {found}"
    for lane, positions in waiting.items():
        _check_lane(lane, positions, rows[lane], applied.get(lane, []), found)
    return found


def _check_lane(
    lane: str,
    positions: list[int],
    row: tuple[int, Any, str | None],
    applied: list[int],
    found: OutboxFound,
) -> None:
    """The lane's row says what the queue holds, and nothing has passed its head."""
    events, due_at, token = row
    head = positions[0]
    status = found.statuses[head]
    told = f"lane {lane!r}: due {due_at}, head {head} {status}, token {token}; {found}"
    assert events == len(positions), f"it counts {events}, not {positions}; {told}"
    passed = [at for at in applied if at > head]
    assert not passed, f"{passed} passed the head; {told}"
    assert (due_at is None) == (status == "dead"), told
    assert (token is not None) == (status == "processing"), told
    behind = [at for at in positions[1:] if found.statuses[at] == "processing"]
    assert not behind, f"{behind} are tried before their time; {told}"


def _backfill(query: Query, kind: Kind) -> tuple[int | None, int]:
    rows = query(
        "SELECT o.backfill_until, c.position FROM holdfast_outbox AS o JOIN holdfast_checkpoint"
        " AS c ON c.projection = o.projection AND c.feed = o.feed"
        f" WHERE o.projection = '{kind}'"
    )
    return rows[0] if rows else (None, 0)
