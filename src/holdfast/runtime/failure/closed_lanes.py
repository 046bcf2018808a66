"""The closed lanes of one projection on one feed, as its runner knows them.

They stay valid between transactions: an operator's change raises the checkpoint's revision, and a
runner that has not seen it can't commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime

from holdfast.model.lane import Lane
from holdfast.model.policy import Limits
from holdfast.runtime.store.queue_items import OUTSTANDING, NewItem


class ClosedLanes:
    """Closed lanes, and the changes of the open transaction."""

    def __init__(self, closed: Mapping[str, Lane], resolved: Set[int] = frozenset()) -> None:
        self.closed, self.resolved = dict(closed), resolved
        # A set is quicker than a dict's keys: it compares the hashes, which are close in memory.
        self._names = set(closed)
        self.changes: dict[str, Lane] = {}
        """The lanes to write in the open transaction."""
        self._new = 0
        # When the first head is due, so that a batch need not go through all lanes.
        self._first_due: datetime | None = None
        self._knows_first = False

    def __len__(self) -> int:
        return len(self.closed) + self._new

    def __bool__(self) -> bool:
        return bool(self.closed or self.changes)

    def __contains__(self, lane: str) -> bool:
        return lane in self.closed or lane in self.changes

    def are_open(self, lanes: Iterable[str]) -> bool:
        """Whether none of the lanes is closed."""
        if not self.changes:
            return self._names.isdisjoint(lanes)
        lanes = [*lanes]
        return self._names.isdisjoint(lanes) and self.changes.keys().isdisjoint(lanes)

    def get(self, lane: str) -> Lane | None:
        """The lane, if it is closed, with the changes of the open transaction."""
        return self.changes.get(lane) or self.closed.get(lane)

    def add(self, item: NewItem) -> None:
        """Adds an event to its lane in the open transaction."""
        if item.status not in OUTSTANDING:
            return
        known = self.get(item.lane)
        if known is None:
            self.changes[item.lane] = Lane(1, item.next_attempt_at)
            self._new += 1
        else:
            self.changes[item.lane] = Lane(known.events + 1, known.due_at)

    def wake(self, lane: str, at: datetime) -> None:
        """Makes the head of a closed lane due in the open transaction."""
        known = self.get(lane)
        if known is not None:
            self.changes[lane] = Lane(known.events, at)

    def discount(self, items: Iterable[NewItem]) -> None:
        """Takes back the count of items that were in the queue already."""
        for item in items:
            known = self.changes.get(item.lane)
            if known is not None and item.status in OUTSTANDING:
                self.changes[item.lane] = Lane(max(1, known.events - 1), known.due_at)

    def overflow(self, lane: str, limits: Limits) -> str | None:
        """Why the lane can't take one more event, or None."""
        known = self.get(lane)
        if known is None:
            if len(self) < limits.lanes:
                return None
            return f"{limits.lanes:,} lanes are closed, which is the limit (Limits.lanes)"
        if known.events < limits.events_per_lane:
            return None
        return f"{known.events:,} events wait in it, which is the limit (Limits.events_per_lane)"

    def commit(self) -> None:
        for lane, known in self.changes.items():
            self.set(lane, known)
        self.changes, self._new = {}, 0

    def roll_back(self) -> None:
        self.changes, self._new = {}, 0

    def set(self, lane: str, known: Lane | None) -> None:
        """Sets a committed lane; None opens it."""
        before = self.closed.pop(lane, None)
        if known is None:
            self._names.discard(lane)
        else:
            self.closed[lane] = known
            self._names.add(lane)
        if before is not None and before.due_at is not None and before.due_at == self._first_due:
            self._knows_first = False
        elif known is not None and known.due_at is not None:
            self._first_due = min(self._first_due or known.due_at, known.due_at)

    def due(self, now: datetime) -> Sequence[str]:
        """The lanes whose heads are due, longest first."""
        first = self.next_due()
        if first is None or first > now:
            return []
        found = sorted((at, lane) for lane, at in self._times() if at <= now)
        return [lane for _, lane in found]

    def next_due(self) -> datetime | None:
        """When the next head is due."""
        if not self._knows_first:
            self._first_due = min((at for _, at in self._times()), default=None)
            self._knows_first = True
        return self._first_due

    def _times(self) -> Iterator[tuple[str, datetime]]:
        return ((n, lane.due_at) for n, lane in self.closed.items() if lane.due_at is not None)
