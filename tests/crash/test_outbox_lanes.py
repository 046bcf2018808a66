"""Lanes never interleave: not in two processes, with handlers of any length, failing or frozen."""

import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.postgres import wait_until
from tests.world.app import Moved, Name, build_app
from tests.world.checks import check_one
from tests.world.process import WorkerProcess
from tests.world.progress import await_settled
from tests.world.spoilt import PARKS, Spoilt
from tests.world.wanted import Limits, Wanted

STREAMS = 20
MORE = 20
"""Maximum of events, in multiples, until both processes have worked."""
FAILURES = ("retry, then park", "park and again", "park and soon")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler, in nanoseconds of a clock that all processes share."""

    stream: str
    position: int
    process: int
    claimed: int
    began: int
    ended: int | None


@pytest.fixture
def traced(outbox: Wanted, tmp_path: Path) -> Wanted:
    return replace(outbox, trace=str(tmp_path / "trace"), concurrency=8, random_seconds=0.005)


def test_calls_of_a_lane_follow_one_another(
    traced: Wanted, outbox_kind: Name, spoilt: Spoilt
) -> None:
    """No lease ends here: one call begins when the last one has ended."""
    traced = replace(traced, limits=Limits(lease_seconds=60.0))
    run(traced, outbox_kind, spoilt, events=120, freezes=0)
    calls = read_calls(traced)
    assert len({call.process for call in calls}) == 2
    assert not overlaps(calls)


@pytest.mark.soak
def test_calls_of_a_lane_follow_one_another_for_long(
    traced: Wanted, outbox_kind: Name, spoilt: Spoilt
) -> None:
    traced = replace(traced, limits=Limits(lease_seconds=60.0))
    run(traced, outbox_kind, spoilt, events=20_000, freezes=0)
    assert not overlaps(read_calls(traced))


@pytest.mark.soak
def test_calls_of_a_lane_overlap_only_when_a_lease_has_ended(
    traced: Wanted, outbox_kind: Name, spoilt: Spoilt
) -> None:
    """Compares clocks, so it is not for busy machines."""
    lease_seconds = 0.3
    traced = replace(traced, limits=Limits(lease_seconds=lease_seconds))
    run(traced, outbox_kind, spoilt, events=120, freezes=2)
    for first, second in overlaps(read_calls(traced)):
        # The database's clock is read a moment before or after ours.
        assert second.claimed - first.claimed >= 0.9 * lease_seconds * 1e9, (first, second)


def run(
    traced: Wanted,
    kind: Name,
    spoilt: Spoilt,
    *,
    events: int,
    freezes: int,
) -> None:
    """Two processes, of which one is frozen now and then, until all is applied."""
    url = traced.url
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    spoilt[0] = "park and again"
    with build_app(url, kind, policy=PARKS, concurrency=8) as app, ExitStack() as started:
        app.migrate()
        workers = [started.enter_context(WorkerProcess(traced)) for _ in range(2)]
        for worker in workers:
            worker.wait_until_said("Started")
        number = 0
        # Both are to have their part in it.
        while number < events or not all(worker.said("Committed") for worker in workers):
            assert number < MORE * events, "one of them does nothing"
            number += 1
            if chance.random() < 0.05:
                spoilt[number] = chance.choice(FAILURES)
            app.journal.append(f"lane-{chance.randrange(STREAMS)}", [Moved(number)])
            if freezes and number % (events // freezes) == 0:
                freeze_for_long(*chance.sample(workers, 2))
        for bad in spoilt.numbers():
            if bad:
                del spoilt[bad]
        await_settled(url, kind, lambda: workers, requeue=app)
        for worker in workers:
            assert worker.stop() == 0, worker
    found = check_one(url, kind, complete=True)
    assert len(found.applied) == number


def freeze_for_long(frozen: WorkerProcess, other: WorkerProcess) -> None:
    """Until the other one has taken something over, or has nothing left to do."""
    commits, failures = other.times_said("Committed"), other.times_said("Failed")
    frozen.freeze()
    with suppress(TimeoutError):  # It may wait for a transaction that the frozen one has begun.
        wait_until(
            lambda: (
                other.times_said("Failed") > failures + 1
                or other.times_said("Committed") > commits + 20
            ),
            1,
            "the other one to go on",
        )
    frozen.wake()


def overlaps(calls: Sequence[Call]) -> list[tuple[Call, Call]]:
    """Calls of one lane of which the second began before the first had ended."""
    found = []
    lanes: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.began):
        found += [
            (other, call)
            for other in lanes[call.stream]
            if other.ended is None or other.ended > call.began
        ]
        lanes[call.stream].append(call)
    return found


def read_calls(traced: Wanted) -> list[Call]:
    """The calls in a trace, each with the last claim of its lane by the same process."""
    calls: list[Call] = []
    claims: dict[tuple[str, str], int] = {}
    open_calls: dict[tuple[str, str, str], Call] = {}
    # In the order of time: a thread may write of a claim when another one has begun to work on it.
    lines = sorted(
        (line.split() for line in Path(traced.trace or "").read_text().splitlines()),
        key=lambda x: int(x[1]),
    )
    for what, at, process, thread, stream, position in lines:
        key = (process, thread, stream)
        match what:
            case "claim":
                claims[process, stream] = int(at)
            case "begin":
                claimed = claims[process, stream]
                open_calls[key] = Call(
                    stream, int(position), int(process), claimed, int(at), ended=None
                )
            case _:
                call = open_calls.pop(key)
                assert call.position == int(position)
                calls.append(replace(call, ended=int(at)))
    return [*calls, *open_calls.values()]
