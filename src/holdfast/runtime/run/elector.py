"""Wins the leadership of a projection on a feed, and knows whether it is still ours.

At most one process holds the lease. Taking it over raises the checkpoint's epoch, which fences
every earlier leader, also one that is frozen and believes to lead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from holdfast.errors import Fenced
from holdfast.runtime.run.worker import RunnerContext
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.session import Session


class Elector:
    """Stands by for the lease of one runner, takes over, and keeps watch while the runner waits."""

    def __init__(
        self,
        projection: str,
        context: RunnerContext,
        stop: threading.Event,
        *,
        until: int | None,
    ) -> None:
        """`until`: where another runner comes to this position, there is nothing left to do."""
        self._projection, self._context, self._stop = projection, context, stop
        self._until, self._limits = until, context.limits
        self.checkpoint: Checkpoint | None = None
        """The checkpoint under which this runner has led last."""
        self.found: Checkpoint | None = None
        """The checkpoint as it was when the lease was taken last."""
        self.has_arrived = False

    def stand_by(self, session: Session) -> tuple[Checkpoint, Lease] | None:
        """Waits for the lease; None when asked to stop, or when the other runner has arrived."""
        while True:
            checkpoint = self._open(session)
            lease = self._context.leases.acquire(checkpoint)
            if lease is not None:
                self.found = checkpoint
                return checkpoint, lease
            self.has_arrived = self._until is not None and checkpoint.position >= self._until
            if self.has_arrived or not self._wait_for_lease(session, checkpoint):
                return None

    def is_resumed(self, checkpoint: Checkpoint) -> bool:
        """Whether this runner was the last to lead, and has only lost its connection."""
        return self.checkpoint is not None and self.checkpoint.epoch == checkpoint.epoch

    def take_over(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Checkpoint:
        """Raises the epoch; raises Fenced if another runner was quicker."""
        head = self._context.open_source(session).head()
        is_idle = head <= checkpoint.position and not session.closed_lanes(checkpoint)
        self.checkpoint = session.take_over(
            checkpoint,
            resumed=self.is_resumed(checkpoint),
            ended_well=is_idle or lease.was_given_back,
        )
        return self.checkpoint

    def still_ours(self, session: Session) -> Checkpoint:
        """The checkpoint as it is now; raises Fenced if another runner has taken over."""
        checkpoint = self._open(session)
        if self.checkpoint is None or checkpoint.epoch != self.checkpoint.epoch:
            raise Fenced(f"projection {self._projection!r} was taken over while it waited")
        return checkpoint

    def was_reset(self, session: Session, lease: Lease) -> bool:
        """Whether an operator has fenced this runner, by a reset or a rewind, and nobody leads."""
        if not lease.held:
            return False
        now = session.find_checkpoint(self._projection, self._context.feed)
        return now is not None and now.state == "stopped"

    def rest(self, until: float, lease: Lease, waited: Callable[[float], None]) -> bool:
        """Waits with nothing but the lease; now and then, calls `waited` with the seconds left.

        Ends early when asked to stop, or when an operator has changed something. Returns False if
        that was to end the wait.
        """
        clock, blocks_caller = self._context.clock, self._until is not None
        while True:
            part = self._limits.recheck_seconds
            if clock.wait_until(until, self._stop, part_seconds=part, blocks_caller=blocks_caller):
                return True
            left = until - clock.monotonic()
            waited(left)
            if not lease.held:
                raise Fenced(f"projection {self._projection!r} lost its lease")
            if left <= 0:
                return True
            with closing(self._context.open_session()) as session:
                now = self.still_ours(session)
            if self.checkpoint is not None and now.revision != self.checkpoint.revision:
                return bool(now.is_waiting)

    def _wait_for_lease(self, session: Session, checkpoint: Checkpoint) -> bool:
        """Waits while another runner leads, or for a moment; False when asked to stop."""
        if self._until is not None:
            # Then looks how far the other runner is.
            return not self._stop.wait(self._limits.standby_seconds)
        session.rest()
        while not self._stop.wait(self._limits.standby_seconds):
            if not self._context.leases.is_taken(checkpoint):
                return True
        return False

    def _open(self, session: Session) -> Checkpoint:
        return session.open_checkpoint(self._projection, self._context.feed)
