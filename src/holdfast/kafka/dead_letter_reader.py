"""Dead letters that a consumer of any make has written to a topic, read to be imported."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator

import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from holdfast.errors import StoreUnavailable
from holdfast.kafka.errors import failure
from holdfast.kafka.partition import Partition
from holdfast.kafka.publish.dead_letters import PREFIX
from holdfast.kafka.record import Record
from holdfast.kafka.record_decoder import record_of
from holdfast.kafka.subscription import Subscription
from holdfast.runtime.run.foreign_source import ForeignDeadLetter

READ_SECONDS = 30.0
"""Timeout of one read from a partition."""

MAX_PARTITIONS = 1 << 14
MAX_TOPICS = 1 << 16
"""Ranges of the numbers from which the position of an imported event is made."""

TEXT_ORIGINS = (
    (f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"),
    ("__connect.errors.topic", "__connect.errors.partition", "__connect.errors.offset"),
)
"""Headers with a record's original partition and offset as text: ours, and Kafka Connect's."""

SPRING_ORIGIN = (
    "kafka_dlt-original-topic",
    "kafka_dlt-original-partition",
    "kafka_dlt-original-offset",
)
"""The same headers of Spring, whose numbers are big-endian bytes."""


def read_dead_letters(subscription: Subscription, topic: str) -> Iterator[ForeignDeadLetter]:
    """The events in a dead-letter topic, each partition's oldest first."""
    known = set(subscription.partitions())
    for number in subscription.brokers.partitions(topic):
        for record in _records(subscription, Partition(topic, number)):
            found = _dead_letter(subscription, record, known)
            if found is not None:
                yield found


def _records(subscription: Subscription, partition: Partition) -> Iterator[Record]:
    """The records that a partition has now, the oldest first."""
    consumer = subscription.clients.reader()
    try:
        consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(READ_SECONDS)
            if message is None:
                raise StoreUnavailable(f"{partition.feed} can't be read: no answer in time")
            error = message.error()
            if error is None:
                yield record_of(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise failure(error, f"{partition.feed} can't be read")
    finally:
        consumer.close()


def _dead_letter(
    subscription: Subscription, record: Record, known: Collection[Partition]
) -> ForeignDeadLetter | None:
    """The event in a dead letter, with its feed and position where they are known."""
    origin, feed, position = _origin(record), None, None
    original = record
    if origin is not None and origin[0] in known:
        partition, offset = origin
        topic, number = partition
        original = msgspec.structs.replace(record, topic=topic, partition=number, offset=offset)
        feed, position = partition.feed, offset + 1
    event = subscription.decoder.event_of(original)
    if event is None:
        return None
    event = msgspec.structs.replace(event, position=_negative_position(record))
    return ForeignDeadLetter(feed, position, event)


def _origin(record: Record) -> tuple[Partition, int] | None:
    """The partition and offset that a dead letter's headers name."""
    for names in TEXT_ORIGINS:
        values = [record.header(name) for name in names]
        if all(values):
            topic, number, offset = (str(value, "utf-8", "replace") for value in values if value)
            if number.isdecimal() and offset.isdecimal():
                return Partition(topic, int(number)), int(offset)
    topic_, number_, offset_ = (record.header(name) for name in SPRING_ORIGIN)
    if topic_ and number_ and offset_:
        partition = Partition(topic_.decode("utf-8", "replace"), int.from_bytes(number_, "big"))
        return partition, int.from_bytes(offset_, "big")
    return None


def _negative_position(record: Record) -> int:
    """A position that no event of a feed has, and hardly any other dead letter."""
    topic = zlib.crc32(record.topic.encode()) % MAX_TOPICS
    return -((record.offset * MAX_PARTITIONS + record.partition) * MAX_TOPICS + topic + 1)
