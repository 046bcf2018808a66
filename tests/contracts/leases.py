"""What leases promise: one holder at a time, and the next one after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.leases import Lease, Leases
from tests.contracts.samples import concurrently


class LeaseContract:
    """Needs fixtures `open_leases`, which gives each caller the leases of another process where
    the store knows processes, and `open_checkpoint`, which makes checkpoints by name.
    """

    @pytest.fixture
    def open_leases(self) -> Callable[[], Leases]:
        raise NotImplementedError

    @pytest.fixture
    def open_checkpoint(self) -> Callable[[str], Checkpoint]:
        raise NotImplementedError

    @pytest.fixture
    def leases(self, open_leases: Callable[[], Leases]) -> Leases:
        return open_leases()

    @pytest.fixture
    def checkpoint(self, open_checkpoint: Callable[[str], Checkpoint]) -> Checkpoint:
        return open_checkpoint("things")

    def test_a_lease_has_one_holder(
        self, leases: Leases, open_leases: Callable[[], Leases], checkpoint: Checkpoint
    ) -> None:
        lease = _acquired(leases, checkpoint)
        assert lease.held
        assert open_leases().acquire(checkpoint) is None
        assert lease.held

    def test_two_runners_of_one_process_are_two(
        self, leases: Leases, checkpoint: Checkpoint
    ) -> None:
        lease = _acquired(leases, checkpoint)
        assert leases.acquire(checkpoint) is None
        assert lease.held

    def test_the_next_one_comes_after_a_release(
        self, leases: Leases, open_leases: Callable[[], Leases], checkpoint: Checkpoint
    ) -> None:
        lease = _acquired(leases, checkpoint)
        lease.release()
        assert not lease.held
        successor = _acquired(open_leases(), checkpoint)
        lease.release()  # Once more changes nothing, and above all not the successor's.
        assert successor.held
        assert leases.acquire(checkpoint) is None
        successor.release()
        _acquired(leases, checkpoint).release()

    def test_leases_of_different_projections_are_independent(
        self, leases: Leases, open_checkpoint: Callable[[str], Checkpoint]
    ) -> None:
        first = _acquired(leases, open_checkpoint("first"))
        second = _acquired(leases, open_checkpoint("second"))
        first.release()
        assert second.held

    def test_of_many_at_once_one_gets_it(
        self, open_leases: Callable[[], Leases], checkpoint: Checkpoint
    ) -> None:
        several = [open_leases() for _ in range(4)]
        for _ in range(5):
            acquired = concurrently(4, lambda number: several[number].acquire(checkpoint))
            held = [lease for lease in acquired if lease is not None]
            assert len(held) == 1
            held[0].release()


def _acquired(leases: Leases, checkpoint: Checkpoint) -> Lease:
    lease = leases.acquire(checkpoint)
    assert lease is not None
    return lease
