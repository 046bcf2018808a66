"""Produces the events of accounts, as a process that may be killed at any time.

`python -m tests.world.producer BOOTSTRAP TOPIC EVENTS ACCOUNTS SHARE SHARES` produces
the history's events of its share of the accounts. It begins after what the topic has, and goes on
up to the number that it is told last on its standard input. One event in twenty comes again.
"""

import os
import random
import sys
import threading
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.world.speech import say
from tests.world.topic import QUERY_SECONDS, History, record

AGAIN = 0.05
"""The share of the events that come again."""
LATELY = 5
"""The event that comes again is among this number of last versions."""
BURST_EVENTS = 20


class Allowance:
    """How far the history may be produced, as the test says."""

    def __init__(self) -> None:
        self._until = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_for(self, number: int) -> None:
        """Returns when an event's number may be produced."""
        with self._changed:
            self._changed.wait_for(lambda: number < self._until)

    def _listen(self) -> None:
        """The test holds the other end for as long as it lives."""
        heard = b""
        while more := os.read(0, 1024):
            *lines, heard = (heard + more).split(b"\n")
            for line in lines:
                with self._changed:
                    self._until = int(line)
                    self._changed.notify_all()
        os._exit(9)


def read_topic(bootstrap: str, topic: str) -> Iterator[Message]:
    """All that a topic has now; what an aborted transaction left is not there."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True}
    )
    try:
        left = set(consumer.list_topics(topic, timeout=QUERY_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            for message in consumer.consume(1_000, 1.0):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def last_versions(bootstrap: str, topic: str) -> dict[str, int]:
    """The last version that a topic has of each account."""
    last: dict[str, int] = {}
    for message in read_topic(bootstrap, topic):
        stream, version = (message.key() or b"").decode(), version_of(message)
        last[stream] = max(last.get(stream, 0), version)
    return last


def version_of(message: Message) -> int:
    headers = dict(message.headers() or [])
    return int(headers["holdfast-version"] or 0)


def produce(producer: Producer, topic: str, stream: str, version: int, **settings: str) -> None:
    made = record(stream, version, **settings)
    producer.produce(topic, key=made.key, value=made.value, headers=made.headers)


def main(bootstrap: str, topic: str, history: History, share: int, shares: int) -> None:
    allowance = Allowance()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
    )
    known = last_versions(bootstrap, topic)
    say(f"Ready {sum(known.values())}")
    produced = 0
    for number, (stream, version) in enumerate(history):
        if number % history.accounts % shares != share or version <= known.get(stream, 0):
            continue
        allowance.wait_for(number)
        produce(producer, topic, stream, version)
        if random.random() < AGAIN:
            produce(producer, topic, stream, random.randint(max(1, version - LATELY), version))
        produced += 1
        if produced % BURST_EVENTS == 0:
            producer.flush(QUERY_SECONDS)
    assert producer.flush(QUERY_SECONDS) == 0
    say(f"Produced {produced}")


if __name__ == "__main__":
    bootstrap, topic, *numbers = sys.argv[1:]
    events, accounts, share, shares = map(int, numbers)
    main(bootstrap, topic, History(events, accounts), share, shares)
