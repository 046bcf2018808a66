"""GroupLeases: the right to run on a partition that the group has assigned to this process."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.leases import Lease, Leases

LEASE_WAIT_SECONDS = 5.0
"""Timeout of the wait for the lease. Then its holder counts as frozen, or cut off."""

LEASE_RETRY_SECONDS = 1.0
"""Interval at which a runner that leads without the lease asks for it again."""


class GroupLeases:
    """The store's leases, for partitions that a group assigns.

    The group has the last word: if the previous holder does not release the lease in time, the
    partition's new runner leads without it. It raises the epoch, so that the holder can't commit
    any more, and cuts off the holder's open transaction where that would keep it waiting.
    """

    def __init__(self, leases: Leases, clock: Clock, *, is_assigned: Callable[[], bool]) -> None:
        self._leases, self._clock, self._is_assigned = leases, clock, is_assigned
        self._waiting_since: float | None = None

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        """The lease, or None while another process has it."""
        lease = self._leases.acquire(checkpoint)
        now = self._clock.monotonic()
        if lease is None:
            if self._waiting_since is None:
                self._waiting_since = now
            if now - self._waiting_since < LEASE_WAIT_SECONDS or not self._is_assigned():
                return None
        self._waiting_since = None
        found = _GroupLease(self, checkpoint, lease)
        if checkpoint.state == "running":
            self._cut_off_unclean(checkpoint, found)
        return found

    def is_taken(self, checkpoint: Checkpoint) -> bool:  # noqa: ARG002
        """Always False: after a time it can be acquired, even if another process holds it."""
        return False

    def cut_off(self, checkpoint: Checkpoint) -> None:
        """Undoes the open transaction of the last leader, where the store can."""
        self._leases.cut_off(checkpoint)

    def _cut_off_unclean(self, checkpoint: Checkpoint, found: Lease) -> None:
        """Cuts off a last leader that did not end cleanly: it is dead, cut off, or frozen."""
        try:
            self.cut_off(checkpoint)
        except BaseException:
            found.release()
            raise

    def retry(self, checkpoint: Checkpoint) -> Lease | None:
        return self._leases.acquire(checkpoint)

    def is_assigned(self) -> bool:
        return self._is_assigned()

    def now(self) -> float:
        return self._clock.monotonic()


class _GroupLease:
    """Held while the partition is assigned here. It gets the store's lease once that is free."""

    def __init__(self, leases: GroupLeases, checkpoint: Checkpoint, lease: Lease | None) -> None:
        self._leases, self._checkpoint, self._lease = leases, checkpoint, lease
        self._tried_at = leases.now()

    @property
    def held(self) -> bool:
        if not self._leases.is_assigned():
            return False
        if self._lease is None:
            now = self._leases.now()
            if now - self._tried_at >= LEASE_RETRY_SECONDS:
                self._tried_at = now
                self._lease = self._leases.retry(self._checkpoint)
            return True
        return self._lease.held

    @property
    def was_given_back(self) -> bool:
        return self._lease is not None and self._lease.was_given_back

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()
