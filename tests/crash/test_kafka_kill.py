"""kill -9 of producers and consumers, while others join and leave their groups: no event is lost,
none takes effect twice, and none overtakes another of its account.
"""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

import pytest

from holdfast import App
from tests.conftest import MakeTopic
from tests.world.app import STREAM_KINDS
from tests.world.checks import check_topic
from tests.world.gate import at_commit
from tests.world.partitions import await_processed, count_processed, read_partitions
from tests.world.process import Producer, WorkerProcess
from tests.world.producer import read_topic
from tests.world.topic import History, quick_settings
from tests.world.wanted import Topic, Wanted

PARTITIONS = 4
CONSUMERS = 3
PRODUCERS = 2
WORK_EVENTS = 100


@pytest.mark.timeout(300)
def test_producers_and_consumers_are_killed(
    store_url: str, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic(PARTITIONS)
    kill_all_the_time(store_url, kafka_broker, topic, History(3_000, 50), rounds=8)


@pytest.mark.soak
def test_producers_and_consumers_are_killed_for_long(
    store_url: str, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic(PARTITIONS)
    kill_all_the_time(store_url, kafka_broker, topic, History(100_000, 1_000), rounds=100)


def kill_all_the_time(
    url: str, bootstrap: str, topic: str, history: History, *, rounds: int
) -> None:
    """In each round a share of the history is produced, and somebody goes in the middle of it."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    started_at = time.monotonic()
    with App(url) as app:
        app.migrate()
    if url.startswith("postgresql"):
        at_commit(url, "pg_sleep(0.01)")
    with Group(url, bootstrap, topic, history) as group:
        ways: list[Callable[[], None]] = [
            lambda: group.kill_consumer_at_work(chance),
            lambda: group.kill_producer(chance),
            lambda: group.replace_consumer(chance),
            lambda: group.kill_consumer(chance.choice(group.consumers)),
        ]
        for number in range(rounds):
            before, share = min(count_processed(url).values()), history.events // rounds
            group.allow(history.events if number == rounds - 1 else share * (number + 1))
            await_processed(url, before + share // 3, alive=group.check)
            time.sleep(chance.uniform(0, 0.1))  # Any moment may be the wrong one.
            # Each of them at least once, then what comes.
            (ways[number] if number < len(ways) else chance.choice(ways))()
            check_topic(url)
        group.finish()
        lines = check_topic(url, history.versions())
    seconds = time.monotonic() - started_at
    repeated = sum(1 for _ in read_topic(bootstrap, topic)) - history.events
    epochs = sum(partition.epoch for partition in read_partitions(url))
    print(
        f"{lines} events in {seconds:.1f} s; {group.killed} killed, {group.inside} of them inside "
        f"a transaction; {repeated} came again; {epochs} epochs"
    )
    assert lines == history.events
    assert repeated > history.events // 50
    assert group.inside > 0


class Group:
    """Consumers of all partitions and producers of all accounts, at any time."""

    def __init__(self, url: str, bootstrap: str, topic: str, history: History) -> None:
        self._url, self._history = url, history
        self._topic = Topic(bootstrap, topic, quick_settings(bootstrap))
        self._wanted = Wanted(
            url, STREAM_KINDS, reads=self._topic, batch_events=50, slow_seconds=0.006
        )
        self._started = ExitStack()
        self._allowed = 0
        self.consumers: list[WorkerProcess] = []
        self._producers: list[Producer] = []
        self.killed = self.inside = 0

    def __enter__(self) -> Self:
        with self._started:
            self.consumers = [self._consumer() for _ in range(CONSUMERS)]
            self._producers = [self._producer(share) for share in range(PRODUCERS)]
            self._started = self._started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def allow(self, until: int) -> None:
        """The history is produced up to this number at least."""
        self._allowed = max(self._allowed, min(until, self._history.events))
        for producer in self._producers:
            producer.allow(self._allowed)

    def check(self) -> None:
        """Asserts that no process has ended by itself."""
        for process in (*self.consumers, *self._producers):
            assert process.is_running or process.said("Produced"), process

    def kill_consumer_at_work(self, chance: random.Random) -> None:
        """Kills one inside a transaction: there is work until one is found there, or none left."""
        while (victim := self._caught_at_work(chance)) is None and not self._is_all_done():
            if min(count_processed(self._url).values()) >= self._allowed:
                self.allow(self._allowed + WORK_EVENTS)
        self.kill_consumer(victim or chance.choice(self.consumers))

    def _caught_at_work(self, chance: random.Random) -> WorkerProcess | None:
        """One that stands inside a transaction, frozen there."""
        for consumer in chance.sample(self.consumers, CONSUMERS):
            if is_inside(consumer):
                consumer.freeze()
                if is_inside(consumer):
                    return consumer
                consumer.wake()
        return None

    def _is_all_done(self) -> bool:
        return min(count_processed(self._url).values()) >= self._history.events

    def kill_consumer(self, victim: WorkerProcess) -> None:
        self.consumers.remove(victim)
        victim.kill()
        self.killed += 1
        self.inside += is_inside(victim)
        self.consumers.append(self._consumer())

    def kill_producer(self, chance: random.Random) -> None:
        share = chance.randrange(PRODUCERS)
        self._producers[share].kill()
        self.killed += 1
        self._producers[share] = self._producer(share)
        self._producers[share].allow(self._allowed)

    def replace_consumer(self, chance: random.Random) -> None:
        """One joins, another one leaves."""
        self.consumers.append(self._consumer())
        leaver = self.consumers.pop(chance.randrange(CONSUMERS))
        leaver.wait_until_said("Loaded")
        assert leaver.stop() == 0, leaver

    def finish(self) -> None:
        """Returns when everything is produced and applied, and everybody has left in order."""
        for producer in self._producers:
            producer.wait_until_said("Produced")
            assert producer.wait() == 0, producer
        await_processed(self._url, self._history.events, alive=self.check)
        for consumer in self.consumers:
            assert consumer.stop() == 0, consumer

    def _consumer(self) -> WorkerProcess:
        return self._started.enter_context(WorkerProcess(self._wanted))

    def _producer(self, share: int) -> Producer:
        return self._started.enter_context(
            Producer(self._topic, self._history, share=share, shares=PRODUCERS)
        )


def is_inside(consumer: WorkerProcess) -> bool:
    """Whether a transaction of the ledger is open, as far as the process has said."""
    said = [
        line for line in list(consumer.lines) if line.startswith(("Handling", "Committed ledger"))
    ]
    return bool(said) and said[-1].startswith("Handling")
