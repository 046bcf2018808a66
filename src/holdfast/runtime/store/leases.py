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
        """Whether the last holder is known to have given it back, rather than died with it."""

    def release(self) -> None: ...


class Leases(Protocol):
    """Hands out leases; at most one process holds a projection's."""

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        """The lease, or None while another process has it."""

    def is_taken(self, checkpoint: Checkpoint) -> bool:
        """Whether somebody had the lease a moment ago, so that it need not be asked for."""

    def cut_off(self, checkpoint: Checkpoint) -> None:
        """Undoes what the last leader has begun, where that can be done.

        For whoever comes after it: frozen inside a transaction, it would keep that one waiting.
        """
