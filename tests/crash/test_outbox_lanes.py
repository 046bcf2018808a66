"""Lanes never interleave: not in two processes, with handlers of any length, failing or frozen."""

import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support import lanes_worker, outbox_worker
from tests.support.lanes import Kind, Stepped, build_lanes_app
from tests.support.lanes_worker import Spoilt
from tests.support.outbox import await_settled, check_all_applied
from tests.support.postgres import wait_until
from tests.support.worker_process import WorkerProcess

COMMAND = ("holdfast", "run", "tests.support.lanes_worker:app")
STREAMS = 20
MORE = 20
"""So many times as many events, at most, until both processes have worked."""
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
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(outbox_worker.TRACE, str(tmp_path / "trace"))
    monkeypatch.setenv(outbox_worker.CONCURRENCY, "8")
    return tmp_path / "trace"


def test_calls_of_a_lane_follow_one_another(
    store_url: str,
    outbox_kind: Kind,
    spoilt: Spoilt,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No lease ends here: one call begins when the last one has ended."""
    monkeypatch.setenv(outbox_worker.LEASE_SECONDS, "60")
    run(store_url, outbox_kind, spoilt, monkeypatch, events=120, freezes=0)
    calls = read_calls(trace)
    assert len({call.process for call in calls}) == 2
    assert not overlaps(calls)


@pytest.mark.soak
def test_calls_of_a_lane_follow_one_another_for_long(
    store_url: str,
    outbox_kind: Kind,
    spoilt: Spoilt,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(outbox_worker.LEASE_SECONDS, "60")
    run(store_url, outbox_kind, spoilt, monkeypatch, events=20_000, freezes=0)
    assert not overlaps(read_calls(trace))


@pytest.mark.soak
def test_calls_of_a_lane_overlap_only_when_a_lease_has_ended(
    store_url: str,
    outbox_kind: Kind,
    spoilt: Spoilt,
    trace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compares clocks, so it is not for busy machines."""
    lease_seconds = 0.3
    monkeypatch.setenv(outbox_worker.LEASE_SECONDS, str(lease_seconds))
    run(store_url, outbox_kind, spoilt, monkeypatch, events=120, freezes=2)
    for first, second in overlaps(read_calls(trace)):
        # The database's clock is read a moment before or after ours.
        assert second.claimed - first.claimed >= 0.9 * lease_seconds * 1e9, (first, second)


def run(
    url: str,
    kind: Kind,
    spoilt: Spoilt,
    monkeypatch: pytest.MonkeyPatch,
    *,
    events: int,
    freezes: int,
) -> None:
    """Two processes, of which one is frozen now and then, until all is applied."""
    monkeypatch.setenv(lanes_worker.RANDOM_SECONDS, "0.005")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    spoilt[0] = "park and again"
    with build_lanes_app(url, kind, concurrency=8) as app, ExitStack() as started:
        app.status()
        workers = [started.enter_context(WorkerProcess(url, command=COMMAND)) for _ in range(2)]
        for worker in workers:
            worker.wait_until_said("Started")
        number = 0
        # Both are to have their part in it.
        while number < events or not all(worker.said("Committed") for worker in workers):
            assert number < MORE * events, "one of them does nothing"
            number += 1
            if chance.random() < 0.05:
                spoilt[number] = chance.choice(FAILURES)
            app.journal.append(f"lane-{chance.randrange(STREAMS)}", [Stepped(number)])
            if freezes and number % (events // freezes) == 0:
                freeze_for_long(*chance.sample(workers, 2))
        for bad in spoilt.numbers():
            if bad:
                del spoilt[bad]
        await_settled(url, kind, lambda: workers, requeue=app)
        for worker in workers:
            assert worker.stop() == 0, worker
    found = check_all_applied(url, kind)
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


def read_calls(trace: Path) -> list[Call]:
    """The calls in a trace, each with the last claim of its lane by the same process."""
    calls: list[Call] = []
    claims: dict[tuple[str, str], int] = {}
    open_calls: dict[tuple[str, str, str], Call] = {}
    # In the order of time: a thread may write of a claim when another one has begun to work on it.
    lines = sorted(
        (line.split() for line in trace.read_text().splitlines()), key=lambda x: int(x[1])
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
