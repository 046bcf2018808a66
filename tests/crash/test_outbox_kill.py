"""kill -9 of relays while events are appended, fail, are requeued and resolved: none is lost."""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.world.app import Name, build_app
from tests.world.checks import check_one
from tests.world.failing_history import FailingHistory
from tests.world.gate import slow_lanes
from tests.world.process import OPERATOR, RUN, WorkerProcess
from tests.world.progress import await_settled
from tests.world.spoilt import PARKS, Spoilt
from tests.world.wanted import Wanted

MORE = 6
"""Maximum of kills, in multiples, until everything has happened at least once."""
STREAMS = 12


def test_relays_are_killed(outbox: Wanted, outbox_kind: Name, spoilt: Spoilt) -> None:
    kill_all_the_time(outbox, outbox_kind, spoilt, kills=4)


@pytest.mark.soak
def test_relays_are_killed_for_long(outbox: Wanted, outbox_kind: Name, spoilt: Spoilt) -> None:
    kill_all_the_time(outbox, outbox_kind, spoilt, kills=200)


def kill_all_the_time(outbox: Wanted, kind: Name, spoilt: Spoilt, *, kills: int) -> None:
    """Two relays and an operator. Who is killed is replaced, while events go on to fail."""
    url, outbox = outbox.url, replace(outbox, slow_seconds=0.003)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    said: list[str] = []
    with build_app(url, kind, policy=PARKS, concurrency=4) as app, ExitStack() as started:
        app.migrate()  # Makes the tables, and has every append enqueued.
        if url.startswith("postgresql"):
            slow_lanes(url)
        history = FailingHistory(
            app,
            spoilt,
            chance,
            backlog=lambda: len(check_one(url, kind).with_status("pending")),
            streams=STREAMS,
        )
        commands = (RUN, RUN, OPERATOR)
        running = [started.enter_context(WorkerProcess(outbox, command=each)) for each in commands]
        done = 0
        while done < kills or not all(count_words(said).values()):
            assert done < MORE * kills, f"something has never happened: {count_words(said)}"
            done += 1
            history.go_on()
            victims = chance.choice([(0,), (1,), (0, 1), (0, 1), (2,)])
            for victim in victims:
                running[victim].wait_until_said("Ready" if victim == 2 else "Started")
            history.go_on()
            time.sleep(chance.uniform(0, 0.15))  # Any moment may be the wrong one.
            for victim in victims:
                running[victim].kill()
                said += running[victim].lines
            check_one(url, kind)
            for victim in victims:
                running[victim] = started.enter_context(
                    WorkerProcess(outbox, command=commands[victim])
                )
        *relays, operator = running
        operator.kill()
        spoilt.clear()
        found = await_settled(url, kind, lambda: relays, requeue=app)
        for relay in relays:
            relay.wait_until_said("Started")  # Before that, a signal ends it like any process.
            assert relay.stop() == 0, relay
        check_one(url, kind, complete=True)
    counted = count_words([*said, *(line for each in running for line in each.lines)])
    print(f"{done} kills; {counted}; {len(found.applied)} of {len(found.lanes)} applied")


def count_words(lines: Sequence[str]) -> dict[str, int]:
    """How often each of the things has happened that a kill may come between."""
    words = ("Committed", "Failed", "Died", "Changed requeue", "Changed resolve")
    return {word: sum(line.startswith(word) for line in lines) for word in words}
