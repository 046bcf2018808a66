"""Waits for the projections of a journal and for the outbox."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast import App, QueueSelection
from tests.support.postgres import POLL_SECONDS, wait_until
from tests.world.app import PROJECTIONS
from tests.world.checks import Found, check_one
from tests.world.tables import Query, snapshot

PATIENCE_SECONDS = 60.0
"""How long nothing may be applied before a test gives up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the journal and the projections have come."""

    head: int
    positions: dict[str, int]

    @property
    def behind(self) -> int:
        """The least position that a projection has reached."""
        return min(self.positions.get(name, 0) for name in PROJECTIONS)

    @property
    def backlog(self) -> int:
        return self.head - self.behind


def read_progress(url: str) -> Progress:
    """Read with the plain driver, which knows of no pool, lease or retry."""

    def read(query: Query) -> Progress:
        ((head,),) = query("SELECT coalesce(max(position), 0) FROM holdfast_event")
        rows = query(
            "SELECT projection, min(position) FROM holdfast_checkpoint GROUP BY projection"
        )
        return Progress(head, dict(rows))

    return snapshot(url, read)


def await_progress(url: str) -> None:
    """Returns when all projections have moved on from where they are."""
    before = read_progress(url).positions

    def moved_on() -> bool:
        now = read_progress(url).positions
        return all(now.get(name, 0) > before.get(name, 0) for name in PROJECTIONS)

    wait_until(moved_on, 60, f"all projections to move on from {before}")


def await_arrival(url: str, timeout_seconds: float = 60.0) -> None:
    """Returns when all projections are at the head of the journal."""
    what = f"arrival, from {read_progress(url)}"
    wait_until(lambda: read_progress(url).backlog == 0, timeout_seconds, what)


def await_settled(
    url: str, name: str, workers: Callable[[], Any], *, requeue: App | None = None
) -> Found:
    """Waits until nothing is left for a worker to do, as long as events are applied.

    `requeue`: until nothing is left for operators either.
    """
    applied, give_up_at = -1, 0.0
    while True:
        if requeue is not None:
            requeue.queue.requeue(QueueSelection(), by="the end", limit=10_000)
        found = check_one(url, name)
        waiting = found.outstanding
        if found.is_settled if requeue is None else not (waiting or found.left):
            return found
        if len(found.applied) > applied:
            applied, give_up_at = len(found.applied), time.monotonic() + PATIENCE_SECONDS
        elif time.monotonic() > give_up_at:
            raise TimeoutError(
                f"{applied} of {len(found.lanes)} are applied, and none in {PATIENCE_SECONDS:g} s; "
                f"{len(waiting)} wait: {waiting[:20]}, claimed: {found.tokens}; {workers()}"
            )
        time.sleep(POLL_SECONDS)
