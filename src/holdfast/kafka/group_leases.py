"""Who may work on a partition: whom the group has chosen, once the one before has let go."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.runtime.store.leases import Lease, Leases

PATIENCE_SECONDS = 5.0
"""So long the group's choice waits for the one before. Then that one is frozen, or cut off."""

ASK_SECONDS = 1.0
"""How often it asks for the lease after it has gone ahead without."""


class GroupLeases:
    """The store's leases, for partitions that a group assigns.

    The group has the last word: when the holder of a lease does not let go, the partition is worked
    on without. The epoch, which is raised then, keeps the holder from changing anything, and what
    it has begun is undone, where it would keep others waiting.
    """

    def __init__(self, leases: Leases, clock: Clock, *, is_assigned: Callable[[], bool]) -> None:
        self._leases, self._clock, self._is_assigned = leases, clock, is_assigned
        self._asked_since: float | None = None

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        """The lease, or None while another process has it."""
        lease = self._leases.acquire(checkpoint)
        now = self._clock.monotonic()
        if lease is None:
            if self._asked_since is None:
                self._asked_since = now
            if now - self._asked_since < PATIENCE_SECONDS or not self._is_assigned():
                return None
        self._asked_since = None
        found = _GroupLease(self, checkpoint, lease)
        if checkpoint.state == "running":
            self._cut_off(checkpoint, found)
        return found

    def is_taken(self, checkpoint: Checkpoint) -> bool:  # noqa: ARG002
        """Never: it may be had after some time, whoever has it."""
        return False

    def cut_off(self, checkpoint: Checkpoint) -> None:
        """Undoes what the last leader has begun, where that can be done."""
        self._leases.cut_off(checkpoint)

    def _cut_off(self, checkpoint: Checkpoint, found: Lease) -> None:
        """Who has led it has not said that it ends: it is dead, cut off, or frozen."""
        try:
            self.cut_off(checkpoint)
        except BaseException:
            found.release()
            raise

    def ask(self, checkpoint: Checkpoint) -> Lease | None:
        return self._leases.acquire(checkpoint)

    def is_assigned(self) -> bool:
        return self._is_assigned()

    def now(self) -> float:
        return self._clock.monotonic()


class _GroupLease:
    """Held while the partition is assigned here, with the store's own lease once that is free."""

    def __init__(self, leases: GroupLeases, checkpoint: Checkpoint, lease: Lease | None) -> None:
        self._leases, self._checkpoint, self._lease = leases, checkpoint, lease
        self._asked_at = leases.now()

    @property
    def held(self) -> bool:
        if not self._leases.is_assigned():
            return False
        if self._lease is None:
            now = self._leases.now()
            if now - self._asked_at >= ASK_SECONDS:
                self._asked_at = now
                self._lease = self._leases.ask(self._checkpoint)
            return True
        return self._lease.held

    @property
    def was_given_back(self) -> bool:
        return self._lease is not None and self._lease.was_given_back

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()
