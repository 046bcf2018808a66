"""A pause while handlers are at work: nothing is committed after it, and no attempt is used up."""

import random
import time

import pytest

from holdfast import Event
from tests.support import outbox_worker
from tests.support.lanes import Kind, Stepped, build_lanes_app
from tests.support.lanes_worker import Spoilt
from tests.support.outbox import OutboxFound, await_settled, check_all_applied, check_outbox
from tests.support.outbox_worker import patient
from tests.support.postgres import wait_until
from tests.support.worker_process import WorkerProcess

COMMAND = ("holdfast", "run", "tests.support.lanes_worker:app")
STREAMS = 8
PAUSES = 5


def test_what_is_at_work_when_it_is_paused_is_not_committed(
    store_url: str, outbox_kind: Kind
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    ends = random.Random(seed)

    def dawdle(_: Event[Stepped]) -> None:
        time.sleep(ends.uniform(0, 0.005))

    with build_lanes_app(
        store_url, outbox_kind, spoil=dawdle, policy=patient(), concurrency=4
    ) as app:
        for number in range(1, PAUSES + 1):
            for _ in range(10):
                events = [Stepped(number) for _ in range(chance.randint(1, 6))]
                app.journal.append(f"lane-{chance.randrange(STREAMS)}", events)
            done = len(check_outbox(store_url, outbox_kind).applied)
            with app.running():
                wait_until(
                    lambda: len(check_outbox(store_url, outbox_kind).applied) > done,  # noqa: B023
                    30,
                    "some events to be applied",
                )
                assert app.pause(outbox_kind, by="a person")
                before = check_outbox(store_url, outbox_kind)
            check_untouched(check_outbox(store_url, outbox_kind), before)
            assert app.resume(outbox_kind, by="a person")
        app.catch_up(timeout_seconds=60)
    found = check_all_applied(store_url, outbox_kind)
    assert len(found.applied) == len(found.lanes)


@pytest.mark.parametrize("outbox_kind", ["noted"], indirect=True)
def test_handlers_that_end_after_the_pause_change_nothing(
    store_url: str, outbox_kind: Kind, spoilt: Spoilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(outbox_worker.DEFAULT_POLICY, "1")
    monkeypatch.setenv(outbox_worker.BUNDLE, "1")
    with build_lanes_app(store_url, outbox_kind, concurrency=4) as app:
        for number in range(1, 9):
            app.journal.append(f"lane-{number % 4}", [Stepped(number)])
        for number in (1, 2, 3):
            spoilt[number] = "hold first"
        with WorkerProcess(store_url, command=COMMAND) as worker:
            for number in (1, 2, 3):
                worker.wait_until_said(f"Holding {number}")
            assert app.pause(outbox_kind, by="a person")
            before = check_outbox(store_url, outbox_kind)
            spoilt.clear()
            for number in (1, 2, 3):
                worker.wait_until_said(f"Released {number}")
            assert worker.stop() == 0, worker  # When it has finished what it had in hand.
            assert not worker.said("Failed"), worker
        check_untouched(check_outbox(store_url, outbox_kind), before)
        with WorkerProcess(store_url, command=COMMAND) as worker:
            worker.wait_until_said("Started")
            assert app.resume(outbox_kind, by="a person")
            await_settled(store_url, outbox_kind, lambda: worker)
            assert worker.stop() == 0, worker
            assert not worker.said("Failed"), worker
    assert len(check_all_applied(store_url, outbox_kind).applied) == 8


def check_untouched(after: OutboxFound, before: OutboxFound) -> None:
    """Nothing was committed since, nobody is at work, and what was tried has all its attempts."""
    assert after == before
    assert not before.tokens
    assert set(before.attempts.values()) <= {0}, before
    assert set(before.statuses.values()) <= {"pending"}, before
