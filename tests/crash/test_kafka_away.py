"""The broker goes away, or the database, or both: consumers wait, and go on by themselves.

Nothing is parked for it, nothing is lost, and nothing is applied twice. Nobody is started again.
"""

import os
import signal
import time
from contextlib import ExitStack

import pytest

from holdfast import App
from tests.support.accounts_books import Books
from tests.support.accounts_checks import await_led, await_versions, check_accounts
from tests.support.accounts_processes import Consumer, quick_settings
from tests.support.kafka import KafkaBroker, create_topic
from tests.support.postgres import PostgresServer, wait_until

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
        stage = Stage(broker, server, started)
        stage.produce_and_await()
        outages: list[list[KafkaBroker | PostgresServer]] = [[broker], [server], [broker, server]]
        for who in outages:
            stage.be_without(who, way, seconds)
        # Nobody answers when they leave: they end all the same.
        os.kill(broker.pid, signal.SIGSTOP)
        for consumer in stage.crew:
            consumer.send(signal.SIGTERM)
        assert [consumer.wait() for consumer in stage.crew] == [0, 0], stage.crew
        check_accounts(stage.url, stage.books.versions)
        assert not any(consumer.said("Parked") for consumer in stage.crew), stage.crew


class Stage:
    """Two consumers at work, and what takes away what they need."""

    def __init__(self, broker: KafkaBroker, server: PostgresServer, started: ExitStack) -> None:
        self._broker, self._server = broker, server
        self.url = server.create_database()
        with App(self.url) as app:
            app.migrate()
        topic = create_topic(broker.bootstrap, partitions=PARTITIONS)
        # A topic that is asked for while its broker starts is soon asked for again.
        quick = {"reconnect.backoff.max.ms": 1_000}
        self.books = Books(broker.bootstrap, topic, ACCOUNTS)
        self.crew = [
            started.enter_context(
                Consumer(
                    self.url,
                    bootstrap=broker.bootstrap,
                    topic=topic,
                    settings={**quick_settings(broker.bootstrap), **quick},
                )
            )
            for _ in range(2)
        ]
        await_led(self.url, range(PARTITIONS), [c.pid for c in self.crew], repr(self.crew))

    def produce_and_await(self) -> None:
        self.books.add(times=5)
        await_versions(self.url, self.books.versions)
        check_accounts(self.url, self.books.versions)

    def be_without(self, who: list[KafkaBroker | PostgresServer], way: str, seconds: float) -> None:
        """All that is produced meanwhile is there afterwards."""
        failures = [consumer.times_said("PollFailed") for consumer in self.crew]
        for each in who:
            getattr(each, way)()
        until = time.monotonic() + seconds
        for stream in self.books.streams:
            self.books.versions[stream] += 1
            self.books.put(stream, self.books.versions[stream])
        if self._server in who:
            for consumer, before in zip(self.crew, failures, strict=True):
                consumer.wait_until_said("PollFailed", times=before + 1)
        wait_until(lambda: time.monotonic() >= until, seconds + 1, "the time to pass")
        for each in who:
            each.restart()
        back_at = time.monotonic()
        self.books.flush()
        self.produce_and_await()
        names = [type(each).__name__ for each in who]
        print(f"{names}: at work {time.monotonic() - back_at:.1f} s after they were back")
