"""Two leaders at a time: one has lost its lease in the middle of its work and does not know yet.

The lease keeps them apart most of the time. What makes a second leader harmless is the epoch: the
checkpoint moves for the last one that took over, and rows move only with the checkpoint.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Event
from holdfast.runtime.signals import LeaseLost, Signal
from tests.support.postgres import wait_until
from tests.world.app import Moved, build_app
from tests.world.checks import check_all
from tests.world.gate import lose_leases, waiting_for_lock
from tests.world.progress import await_arrival


class Stop:
    """Where a leader is stopped in the middle, and let go."""

    def __init__(self, position: int) -> None:
        self.reached, self._position = threading.Event(), position
        self._go = threading.Event()

    def __call__(self, event: Event[Any]) -> None:
        if event.position == self._position:
            self.reached.set()
            assert self._go.wait(60)

    def let_go(self) -> None:
        self._go.set()


@contextmanager
def zombie(url: str, **stops: Stop) -> Iterator[list[Signal]]:
    """An app that leads both projections and is stopped in the middle of three events."""
    signals: list[Signal] = []
    with build_app(url, **stops) as app:  # type: ignore[arg-type]
        app.listen(signals.append)
        app.journal.append("account-1", [Moved(1), Moved(2), Moved(3)])
        with app.running():
            try:
                for stop in stops.values():
                    assert stop.reached.wait(30)
                yield signals
            finally:
                for stop in stops.values():
                    stop.let_go()


def was_fenced(signals: list[Signal], projection: str) -> bool:
    return any(
        isinstance(signal, LeaseLost) and signal.projection == projection for signal in signals
    )


@pytest.mark.parametrize("position", [1, 3])
def test_a_fold_whose_lease_is_lost_changes_nothing(store_url: str, position: int) -> None:
    stop = Stop(position)
    with zombie(store_url, on_folding=stop) as signals, build_app(store_url) as other:
        assert lose_leases(store_url) > 0
        with other.running():
            await_arrival(store_url)
            epoch = check_all(store_url, complete=True).epochs["totals"]
            stop.let_go()
            wait_until(lambda: was_fenced(signals, "totals"), 30, "it to be fenced")
            assert check_all(store_url, complete=True).epochs["totals"] == epoch
            other.journal.append("account-1", [Moved(4)] * 3)
            await_arrival(store_url)
            check_all(store_url, complete=True)


def test_a_handler_whose_lease_is_lost_changes_nothing(postgres_url: str) -> None:
    """It has not written yet, so the other one overtakes it."""
    stop = Stop(1)
    with zombie(postgres_url, on_handling=stop) as signals, build_app(postgres_url) as other:
        assert lose_leases(postgres_url) > 0
        with other.running():
            await_arrival(postgres_url)
            epoch = check_all(postgres_url, complete=True).epochs["ledger"]
            stop.let_go()
            wait_until(lambda: was_fenced(signals, "ledger"), 30, "it to be fenced")
            assert check_all(postgres_url, complete=True).epochs["ledger"] == epoch


def test_a_handler_that_has_written_is_fenced_before_the_other_goes_on(postgres_url: str) -> None:
    """It holds rows that the other one needs, which waits for it, and finds them unchanged."""
    stop = Stop(3)
    with (
        zombie(postgres_url, on_handling=stop) as signals,
        build_app(postgres_url) as other,
        psycopg.connect(postgres_url, autocommit=True) as operator,
    ):
        assert lose_leases(postgres_url) > 0
        with other.running():
            wait_until(lambda: len(waiting_for_lock(operator)) == 1, 30, "the other one to wait")
            stop.let_go()
            wait_until(lambda: was_fenced(signals, "ledger"), 30, "it to be fenced")
            await_arrival(postgres_url)
            check_all(postgres_url, complete=True)
