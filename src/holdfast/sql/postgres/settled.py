"""Settled positions on PostgreSQL: what a reader may pass for good.

Positions come from a sequence. Transactions commit in another order than they drew their positions,
so position 7 may appear after a reader has seen 8. A reader that goes by transaction ids instead
either loses events or stalls behind any open transaction. So:

- An append takes a shared advisory lock *before* it draws positions. The lock's key carries the
  sequence's last value at that moment: a lower bound, every position it draws is larger. The lock
  ends with the transaction, after its commit has become visible.
- A reader takes events in order. While they follow each other without a hole, nothing is missing.
- At a hole it runs three statements with a snapshot each:
    1. the last position that any append has drawn (`drawn`);
    2. the smallest lower bound of the open appends (`bound`);
    3. the events again.
  An append that drew a position up to `drawn` had its lock before statement 1. If statement 2 does
  not see the lock, the transaction has ended: statement 3 sees its events, or it was rolled back.
  If statement 2 sees the lock, its positions are larger than `bound`. So after statement 3 every
  position up to min(drawn, bound) is decided: a hole there stays one.

An open transaction that appends nothing has no lock, and delays no reader. An append that is slow
to commit delays readers at its own position, and only if others have committed beyond it.

This needs a sequence without cache (the default), and a reader on the primary: a replica does not
see the locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from holdfast.runtime.store.ranges import EventRange
from holdfast.sql.database import Connection
from holdfast.sql.event_ranges import between, next_events

R = TypeVar("R", bound=tuple[object, ...])


def settled_rows(
    after: int,
    *,
    read: Callable[[], Sequence[R]],
    drawn: Callable[[], int],
    bound: Callable[[], int | None],
) -> tuple[Sequence[R], bool]:
    """Rows (position first) as far as they are settled, and whether more are held back.

    `read` returns the rows after `after` in order; it is called a second time only at a hole.
    """
    rows = read()
    if len(_unbroken(rows, after)) == len(rows):
        return rows, False
    last_drawn = drawn()
    lowest = bound()
    decided = last_drawn if lowest is None else min(last_drawn, lowest)
    again = read()
    count = sum(1 for row in again if _position(row) <= decided)
    beyond = again[count:]
    # What follows the decided part without a hole is settled too.
    count += len(_unbroken(beyond, max(decided, after)))
    return again[:count], count < len(again)


def _unbroken(rows: Sequence[R], after: int) -> Sequence[R]:
    """The part of `rows` that follows `after` without a hole."""
    if rows and _position(rows[-1]) == after + len(rows):
        return rows
    for index, row in enumerate(rows):
        if _position(row) != after + index + 1:
            return rows[:index]
    return rows


def _position(row: tuple[object, ...]) -> int:
    position = row[0]
    assert isinstance(position, int)
    return position


def next_settled(connection: Connection, after: int, limit: int) -> EventRange:
    """The range of the next events, as far as they are settled."""
    found = next_events(connection, after, limit)
    if found.through == after + found.events:
        return found
    rows, held = settled_rows(
        after,
        read=lambda: connection.run("positions", {"after": after, "limit": limit}),
        drawn=lambda: int(connection.run("last_drawn")[0][0]),
        bound=lambda: connection.run("lowest_open_append")[0][0],
    )
    if not rows:
        return EventRange(after, after, 0, None, held)
    return replace(between(connection, after, int(rows[-1][0])), held=held)
