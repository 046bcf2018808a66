"""A process that ends between an append and its application, at each step: the next one repairs it.

And an event that ends every process that tries it: it is dead in the end, and the others go on.
"""

from collections import Counter
from dataclasses import replace

import pytest

from holdfast.runtime.store.claims import SUSPECT_LOSSES
from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.checks import check_one
from tests.world.process import WorkerProcess
from tests.world.progress import await_settled
from tests.world.spoilt import PARKS, Spoilt
from tests.world.wanted import Step, Wanted

STREAMS = 6
STEPS = (
    Step("before", "claim_heads", 1),
    Step("after", "claim_heads", 1),
    Step("before", "release_claims", 1),
    Step("after", "release_claims", 1),
)
"""Before and after the commits of a claim and of an application."""


def append_some(url: str, kind: Name, events: int) -> None:
    """Enqueued by the appends' own transactions; no worker has run yet."""
    with build_app(url, kind, policy=PARKS, concurrency=4) as app:
        for number in range(1, events + 1):
            app.journal.append(f"lane-{number % STREAMS}", [Moved(number)])


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_what_a_process_left_is_repaired(
    store_url: str,
    outbox_kind: Name,
    spoilt: Spoilt,
    step: Step,
    outbox: Wanted,
) -> None:
    """The first step is tried alone, later ones with other lanes."""
    outbox = replace(outbox, is_patient=True)
    append_some(store_url, outbox_kind, 30)
    assert len(check_one(store_url, outbox_kind).with_status("pending")) == 30
    deaths = 0
    for number in (1, 3):
        dying = Step(step.when, step.statement, number)
        print(dying)
        with WorkerProcess(replace(outbox, dies=dying)) as worker:
            deaths += ends_before_all_is_done(worker, store_url, outbox_kind)
        found = check_one(store_url, outbox_kind)
        if number == 1:
            _check_left(found.applied, found.with_status("processing"), step)
    assert deaths
    with WorkerProcess(outbox) as worker:
        await_settled(store_url, outbox_kind, lambda: worker)
        # All may have been done before it: it hears signals when it has said so.
        wait_until(lambda: any("running" in line for line in worker.lines), 30, "it to begin")
        assert worker.stop() == 0, worker
    assert len(check_one(store_url, outbox_kind, complete=True).applied) == 30


def _check_left(applied: list[int], processing: list[int], step: Step) -> None:
    """Other executors may have come as far as the same step when the process ended."""
    match step.when, step.statement:
        case "before", "claim_heads":
            assert not applied
        case ("after", "claim_heads") | ("before", "release_claims"):
            assert processing
        case _:
            assert applied


def test_event_that_ends_its_process_dies_and_the_rest_is_applied(
    store_url: str, outbox_kind: Name, spoilt: Spoilt, outbox: Wanted
) -> None:
    """However few attempts the policy allows, only that event is charged."""
    spoilt[0], attempts = "retry, then park", 2
    spoilt[8] = "exit"
    append_some(store_url, outbox_kind, 30)
    deaths = 0
    while not check_one(store_url, outbox_kind).is_settled:
        assert deaths < attempts + 2 * SUSPECT_LOSSES
        with WorkerProcess(outbox) as worker:
            deaths += ends_before_all_is_done(worker, store_url, outbox_kind)
    found = check_one(store_url, outbox_kind)
    assert found.with_status("dead") == [8]
    assert found.attempts[8] == attempts
    # The first deaths count for nobody; the head of the lane may have been the event before it.
    assert deaths - attempts in range(SUSPECT_LOSSES, 2 * SUSPECT_LOSSES + 1)
    assert Counter(found.lanes[at] for at in found.outstanding) == {"lane-2": 4}
    assert len(found.applied) == 26
    assert "processing" not in found.statuses.values()


def ends_before_all_is_done(worker: WorkerProcess, url: str, kind: Name) -> bool:
    wait_until(
        lambda: not worker.is_running or check_one(url, kind).is_settled,
        30,
        f"the end of {worker!r}",
    )
    return not worker.is_running
