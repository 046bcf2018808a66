"""A pause while handlers are at work: nothing is committed after it, and no attempt is used up."""

import random
import time
from dataclasses import replace

import pytest

from holdfast import Event
from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.checks import Found, check_one
from tests.world.process import WorkerProcess
from tests.world.progress import await_settled
from tests.world.spoilt import PARKS, Spoilt, patient
from tests.world.wanted import Wanted

STREAMS = 8
PAUSES = 5


def test_what_is_at_work_when_it_is_paused_is_not_committed(
    store_url: str, outbox_kind: Name
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ends = random.Random(seed)

    def dawdle(_: Event[Moved]) -> None:
        time.sleep(ends.uniform(0, 0.005))

    with build_app(store_url, outbox_kind, after=dawdle, policy=patient(), concurrency=4) as app:
        for number in range(1, PAUSES + 1):
            for _ in range(10):
                events = [Moved(number) for _ in range(chance.randint(1, 6))]
                app.journal.append(f"lane-{chance.randrange(STREAMS)}", events)
            done = len(check_one(store_url, outbox_kind).applied)
            with app.running():
                wait_until(
                    lambda: len(check_one(store_url, outbox_kind).applied) > done,  # noqa: B023
                    30,
                    "some events to be applied",
                )
                assert app.pause(outbox_kind, by="an operator")
                before = check_one(store_url, outbox_kind)
            check_untouched(check_one(store_url, outbox_kind), before)
            assert app.resume(outbox_kind, by="an operator")
        app.catch_up(timeout_seconds=60)
    found = check_one(store_url, outbox_kind, complete=True)
    assert len(found.applied) == len(found.lanes)


@pytest.mark.parametrize("outbox_kind", ["ledger"], indirect=True)
def test_handlers_that_end_after_the_pause_change_nothing(
    store_url: str, outbox_kind: Name, spoilt: Spoilt, outbox: Wanted
) -> None:
    outbox = replace(outbox, is_patient=True, limits=replace(outbox.limits, bundle_lanes=1))
    with build_app(store_url, outbox_kind, policy=PARKS, concurrency=4) as app:
        for number in range(1, 9):
            app.journal.append(f"lane-{number % 4}", [Moved(number)])
        for number in (1, 2, 3):
            spoilt[number] = "hold first"
        with WorkerProcess(outbox) as worker:
            for number in (1, 2, 3):
                worker.wait_until_said(f"Holding {number}")
            assert app.pause(outbox_kind, by="an operator")
            before = check_one(store_url, outbox_kind)
            spoilt.clear()
            for number in (1, 2, 3):
                worker.wait_until_said(f"Released {number}")
            assert worker.stop() == 0, worker  # When it has finished what it had begun.
            assert not worker.said("Failed"), worker
        check_untouched(check_one(store_url, outbox_kind), before)
        with WorkerProcess(outbox) as worker:
            worker.wait_until_said("Started")
            assert app.resume(outbox_kind, by="an operator")
            await_settled(store_url, outbox_kind, lambda: worker)
            assert worker.stop() == 0, worker
            assert not worker.said("Failed"), worker
    assert len(check_one(store_url, outbox_kind, complete=True).applied) == 8


def check_untouched(after: Found, before: Found) -> None:
    """Nothing was committed since, nobody is at work, and what was tried has all its attempts."""
    assert after == before
    assert not before.tokens
    assert set(before.attempts.values()) <= {0}, before
    assert set(before.statuses.values()) <= {"pending"}, before
