"""kill -9 of relays while events are appended, fail, are requeued and resolved: none is lost."""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from tests.support import lanes_worker
from tests.support.lanes import Kind, build_lanes_app
from tests.support.lanes_history import History, slow_commits
from tests.support.lanes_worker import Spoilt
from tests.support.outbox import await_settled, check_all_applied, check_outbox
from tests.support.worker_process import WorkerProcess

COMMAND = ("holdfast", "run", "tests.support.lanes_worker:app")
OPERATOR = ("tests.support.lanes_operator",)
MORE = 6
"""So many times as many kills, at most, until everything has happened at least once."""
STREAMS = 12


def test_relays_are_killed(
    store_url: str, outbox_kind: Kind, spoilt: Spoilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(lanes_worker.SLOW_SECONDS, "0.003")
    kill_all_the_time(store_url, outbox_kind, spoilt, kills=4)


@pytest.mark.soak
def test_relays_are_killed_for_long(
    store_url: str, outbox_kind: Kind, spoilt: Spoilt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(lanes_worker.SLOW_SECONDS, "0.003")
    kill_all_the_time(store_url, outbox_kind, spoilt, kills=200)


def kill_all_the_time(url: str, kind: Kind, spoilt: Spoilt, *, kills: int) -> None:
    """Two relays and an operator; whoever is killed is replaced, while events go on to fail."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    said: list[str] = []
    with build_lanes_app(url, kind, concurrency=4) as app, ExitStack() as started:
        app.status()  # Makes the tables, and has every append enqueued.
        if url.startswith("postgresql"):
            slow_commits(url)
        history = History(
            app,
            spoilt,
            chance,
            backlog=lambda: len(check_outbox(url, kind).with_status("pending")),
            streams=STREAMS,
        )
        commands = (COMMAND, COMMAND, OPERATOR)
        crew = [started.enter_context(WorkerProcess(url, command=each)) for each in commands]
        done = 0
        while done < kills or not all(count_words(said).values()):
            assert done < MORE * kills, f"something has never happened: {count_words(said)}"
            done += 1
            history.go_on()
            victims = chance.choice([(0,), (1,), (0, 1), (0, 1), (2,)])
            for victim in victims:
                crew[victim].wait_until_said("Ready" if victim == 2 else "Started")
            history.go_on()
            time.sleep(chance.uniform(0, 0.15))  # Any moment may be the wrong one.
            for victim in victims:
                crew[victim].kill()
                said += crew[victim].lines
            check_outbox(url, kind)
            for victim in victims:
                crew[victim] = started.enter_context(WorkerProcess(url, command=commands[victim]))
        *relays, operator = crew
        operator.kill()
        spoilt.clear()
        found = await_settled(url, kind, lambda: relays, requeue=app)
        for relay in relays:
            relay.wait_until_said("Started")  # Before that, a signal ends it like any process.
            assert relay.stop() == 0, relay
        check_all_applied(url, kind)
    counted = count_words([*said, *(line for each in crew for line in each.lines)])
    print(f"{done} kills; {counted}; {len(found.applied)} of {len(found.lanes)} applied")


def count_words(lines: Sequence[str]) -> dict[str, int]:
    """How often each of the things has happened that a kill may come between."""
    words = ("Committed", "Failed", "Died", "Changed requeue", "Changed resolve")
    return {word: sum(line.startswith(word) for line in lines) for word in words}
