"""The broker goes away, or the database, or both: consumers wait, and go on by themselves.

Nothing is parked for it, nothing is lost, and nothing is applied twice. Nobody is started again.
"""

import os
import signal
import time
from contextlib import ExitStack

import pytest

from holdfast import App
from tests.support.kafka import KafkaBroker, create_topic
from tests.support.postgres import PostgresServer, wait_until
from tests.world.app import STREAM_KINDS
from tests.world.books import Books
from tests.world.checks import check_topic
from tests.world.partitions import await_led, await_versions
from tests.world.process import WorkerProcess
from tests.world.topic import quick_settings
from tests.world.wanted import Topic, Wanted

PARTITIONS = 4
ACCOUNTS = 20


def test_broker_and_database_go_away_and_come_back(own_kafka_broker: KafkaBroker) -> None:
    go_away(own_kafka_broker, "kill", seconds=2.0)


@pytest.mark.soak
@pytest.mark.parametrize("way", ["kill", "stop"])
def test_broker_and_database_are_away_for_a_minute(own_kafka_broker: KafkaBroker, way: str) -> None:
    go_away(own_kafka_broker, way, seconds=60.0)


def go_away(broker: KafkaBroker, way: str, *, seconds: float) -> None:
    with PostgresServer(durable=True) as server, ExitStack() as started:
        outages = Outages(broker, server, started)
        outages.produce_and_await()
        parts: list[list[KafkaBroker | PostgresServer]] = [[broker], [server], [broker, server]]
        for who in parts:
            outages.be_without(who, way, seconds)
        # Nobody answers when they leave: they end all the same.
        os.kill(broker.pid, signal.SIGSTOP)
        for consumer in outages.consumers:
            consumer.send(signal.SIGTERM)
        assert [consumer.wait() for consumer in outages.consumers] == [0, 0], outages.consumers
        check_topic(outages.url, outages.books.versions)
        assert not any(consumer.said("Parked") for consumer in outages.consumers), outages.consumers


class Outages:
    """Two consumers at work, and what takes away what they need."""

    def __init__(self, broker: KafkaBroker, server: PostgresServer, started: ExitStack) -> None:
        self._broker, self._server = broker, server
        self.url = server.create_database()
        with App(self.url) as app:
            app.migrate()
        topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
        # A topic that is asked for while its broker starts is soon asked for again.
        quick = {**quick_settings(broker.bootstrap), "reconnect.backoff.max.ms": 1_000}
        consumer = Wanted(
            self.url,
            STREAM_KINDS,
            reads=Topic(broker.bootstrap, topic, quick),
            batch_events=100,
        )
        self.books = Books(broker.bootstrap, topic, ACCOUNTS)
        self.consumers = [started.enter_context(WorkerProcess(consumer)) for _ in range(2)]
        await_led(
            self.url, range(PARTITIONS), [c.pid for c in self.consumers], repr(self.consumers)
        )

    def produce_and_await(self) -> None:
        self.books.add(times=5)
        await_versions(self.url, self.books.versions)
        check_topic(self.url, self.books.versions)

    def be_without(self, who: list[KafkaBroker | PostgresServer], way: str, seconds: float) -> None:
        """All that is produced meanwhile is there afterwards."""
        # Without the broker a consumer loses its partitions, and then has no runner left that
        # could fail: it has stopped its runners, or they have lost their leases.
        signs = ("PollFailed", "LeaseLost", "Stopped") if self._broker in who else ("PollFailed",)

        def count_signs(consumer: WorkerProcess) -> int:
            return sum(consumer.times_said(sign) for sign in signs)

        before = [count_signs(consumer) for consumer in self.consumers]
        for each in who:
            getattr(each, way)()
        until = time.monotonic() + seconds
        for stream in self.books.streams:
            self.books.versions[stream] += 1
            self.books.put(stream, self.books.versions[stream])
        if self._server in who:
            wait_until(
                lambda: all(
                    count_signs(consumer) > seen
                    for consumer, seen in zip(self.consumers, before, strict=True)
                ),
                30,
                f"all to notice: {self.consumers}",
            )
        wait_until(lambda: time.monotonic() >= until, seconds + 1, "the time to pass")
        for each in who:
            each.restart()
        back_at = time.monotonic()
        self.books.flush()
        self.produce_and_await()
        names = [type(each).__name__ for each in who]
        print(f"{names}: at work {time.monotonic() - back_at:.1f} s after they were back")
