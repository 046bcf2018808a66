"""Settled positions on PostgreSQL: what a reader may pass for good.

Positions come from a sequence. Transactions commit in another order than they drew their numbers,
so a reader that has seen position 8 may still have 7 appear behind its back. A reader that goes
by transaction ids instead either loses events or stalls behind any open transaction. So:

- An append takes a shared advisory lock *before* it draws positions. The lock's key carries the
  sequence's last value at that moment: a lower bound, every position it draws is larger. The lock
  ends with the transaction, after its commit has become visible.
- A reader takes events in order. While they follow each other without a hole, nothing smaller is
  missing, and nothing else is asked.
- At a hole it asks, in three statements with a snapshot each:
    1. what is the last position drawn by anybody (`drawn`)?
    2. which appends are in flight, and what is their smallest bound (`bound`)?
    3. the events again.
  Whoever drew a position up to `drawn` held its lock before statement 1. If statement 2 does not
  see the lock, that transaction has ended, and statement 3 sees its events or it was rolled back.
  If statement 2 does see it, its positions are larger than `bound`. So after statement 3 every
  position up to min(drawn, bound) is decided: a hole there stays one.

An open transaction that appends nothing holds no lock, and holds up nobody. An append that is slow
to commit holds up readers at its own position, and only if others committed beyond it.

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
    """Rows (position first) up to where all is decided, and whether more is held back.

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
    """The next events on PostgreSQL, as far as nothing smaller can appear later; see settled.py."""
    extent = next_events(connection, after, limit)
    if extent.through == after + extent.events:
        return extent
    rows, held = settled_rows(
        after,
        read=lambda: connection.run("positions", {"after": after, "limit": limit}),
        drawn=lambda: int(connection.run("last_drawn")[0][0]),
        bound=lambda: connection.run("lowest_open_append")[0][0],
    )
    if not rows:
        return EventRange(after, after, 0, None, held)
    return replace(between(connection, after, int(rows[-1][0])), held=held)
