"""Dead letters: events that have failed for good, in a topic for those who watch it.

The letter is a message in the queue, written in the transaction that parks the event, and a sink
delivers it: so it is there exactly if the event is dead, and arrives at least once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.errors import error_of, failure
from holdfast.kafka.partition import Partition
from holdfast.kafka.record import Record, record_from_json
from holdfast.kafka.record_decoder import record_of
from holdfast.model.event import Event
from holdfast.model.foreign_feed import DeadEvent, DeadLetter
from holdfast.model.projection import Projection, Tx, on

if TYPE_CHECKING:
    from holdfast.kafka.source import KafkaSource

PREFIX = "holdfast-dead-"
"""So begin the headers that tell of an event's death. Those that it had are kept."""

DELIVERY_SECONDS = 30.0
"""How long the brokers may take for one letter."""

ORIGINS = (
    (f"{PREFIX}topic", f"{PREFIX}partition", f"{PREFIX}offset"),
    ("__connect.errors.topic", "__connect.errors.partition", "__connect.errors.offset"),
)
"""Headers, in text, that say where a record was before: ours, and Kafka Connect's."""

SPRING = ("kafka_dlt-original-topic", "kafka_dlt-original-partition", "kafka_dlt-original-offset")
"""Spring's, whose numbers are bytes, the highest first."""

LOCAL = frozenset(
    (
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._QUEUE_FULL,
    )
)
"""Failures that are not the letter's, and pass."""


class _Data(msgspec.Struct):
    record: str
    lane: str
    error_type: str
    error_message: str
    attempts: int


def topic_of(projection: str) -> str:
    """The topic of the messages about a projection's dead events."""
    return f"holdfast.dead_letters.{projection}"


def letter(death: DeadEvent) -> DeadLetter:
    """A message about a dead event."""
    data = _Data(death.kept, death.lane, death.error_type, death.error_message, death.attempts)
    return DeadLetter(
        topic=topic_of(death.projection),
        key=death.event.stream,
        id=uuid4(),
        data=msgspec.json.encode(data).decode(),
        at=death.at,
    )


def dead_letters_sink(source: KafkaSource, projection: str) -> type[Projection]:
    """The sink that writes a projection's dead events to its source's dead-letter topic."""

    class DeadLetters(_DeadLetters):
        """Writes dead events to a topic, as they came, with headers that say why."""

        @on(topic_of(projection))
        def died(self, event: Event[Any], tx: Tx) -> None:  # noqa: ARG002
            self.write(msgspec.convert(event.data, _Data))

    DeadLetters.source, DeadLetters.projection = source, projection
    return DeadLetters


class _DeadLetters(Projection):
    calls_out: ClassVar[bool] = True
    source: ClassVar[KafkaSource]
    projection: ClassVar[str]

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def write(self, data: _Data) -> None:
        """Writes one letter; returns when the brokers have it."""
        record = record_from_json(data.record)
        result: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            result.append(error)

        producer = self._producer()
        topic = self.source.dead_letters
        assert topic is not None
        try:
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=[*record.headers, *self._headers(record, data)],
                on_delivery=delivered,
            )
        except (KafkaException, BufferError) as error:
            self._failed(error_of(error) if isinstance(error, KafkaException) else None)
        producer.flush(DELIVERY_SECONDS)
        if not result or result[0] is not None:
            self._failed(result[0] if result else None)

    def _headers(self, record: Record, data: _Data) -> list[tuple[str, bytes]]:
        facts = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "projection": self.projection,
            "lane": data.lane,
            "error-type": data.error_type,
            "error-message": data.error_message,
            "attempt": data.attempts,
        }
        return [
            (PREFIX + name, str(value).encode("utf-8", "backslashreplace"))
            for name, value in facts.items()
            if value is not None
        ]

    def _producer(self) -> Producer:
        # One a process: the client does not survive a fork.
        found = self._producers.get(os.getpid())
        if found is None:
            found = self._producers[os.getpid()] = self.source.clients.producer()
        return found

    def _failed(self, error: KafkaError | None) -> None:
        what = f"a dead letter can't be written to {self.source.dead_letters!r}"
        if error is not None and error.fatal():
            self._producers.clear()
        if error is None or error.retriable() or error.fatal() or error.code() in LOCAL:
            # What was begun may still arrive: then it is there twice.
            why = "no answer in time" if error is None else error.str()
            raise ConnectionError(f"{what}: {why}")
        raise HoldfastError(f"{what}: {error.str()} ({error.name()})")


def origin_of(record: Record) -> tuple[Partition, int] | None:
    """The partition and offset that a dead letter was at, where its headers say so."""
    for names in ORIGINS:
        values = [record.header(name) for name in names]
        if all(values):
            topic, partition, offset = (str(value, "utf-8", "replace") for value in values if value)
            if partition.isdecimal() and offset.isdecimal():
                return Partition(topic, int(partition)), int(offset)
    topic_, partition_, offset_ = (record.header(name) for name in SPRING)
    if topic_ and partition_ and offset_:
        number = int.from_bytes(partition_, "big")
        topic = topic_.decode("utf-8", "replace")
        return Partition(topic, number), int.from_bytes(offset_, "big")
    return None


def read_all(source: KafkaSource, partition: Partition) -> Iterator[Record]:
    """The records that a partition has now, the oldest first."""
    consumer = source.clients.reader()
    try:
        consumer.assign([TopicPartition(*partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(DELIVERY_SECONDS)
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
