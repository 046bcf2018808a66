"""Leases: the right to run a projection."""

from __future__ import annotations

from typing import Protocol

from holdfast.runtime.store.checkpoint import Checkpoint


class Lease(Protocol):
    """The right to run a projection, while `held`."""

    @property
    def held(self) -> bool: ...

    @property
    def was_given_back(self) -> bool:
        """Whether the last holder is known to have released it, and not to have died with it."""

    def release(self) -> None: ...


class Leases(Protocol):
    """Grants leases; at most one process holds the lease of a projection."""

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        """The lease, or None while another process holds it."""

    def is_taken(self, checkpoint: Checkpoint) -> bool:
        """Whether a process held the lease a moment ago, so that asking for it is useless."""

    def cut_off(self, checkpoint: Checkpoint) -> None:
        """Ends the open transaction of the last leader, if the database can.

        A leader that is frozen in a transaction would block its successor.
        """
