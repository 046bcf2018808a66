"""Dead letters: events that have failed for good, in a topic for those who watch it.

The letter is a message in the queue, written in the transaction that parks the event, and a sink
delivers it: so it is there exactly if the event is dead, and arrives at least once.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar
from uuid import uuid4

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.errors import HoldfastError
from holdfast.kafka.clients import Clients
from holdfast.kafka.errors import error_of
from holdfast.kafka.record import Record, record_from_json
from holdfast.model.event import Event
from holdfast.model.foreign_feed import DeadEvent, DeadLetter
from holdfast.model.projection import Projection, Tx, on

PREFIX = "holdfast-dead-"
"""So begin the headers that tell of an event's death. Those that it had are kept."""

DELIVERY_SECONDS = 30.0
"""How long the brokers may take for one letter."""

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


def dead_letters_sink(clients: Clients, topic: str, projection: str) -> type[Projection]:
    """The sink that writes a projection's dead events to a dead-letter topic."""

    class DeadLetters(_DeadLetters):
        """Writes dead events to a topic, as they came, with headers that say why."""

        @on(topic_of(projection))
        def died(self, event: Event[Any], tx: Tx) -> None:  # noqa: ARG002
            self.write(msgspec.convert(event.data, _Data))

    DeadLetters.clients, DeadLetters.topic = clients, topic
    DeadLetters.projection = projection
    return DeadLetters


class _DeadLetters(Projection):
    calls_out: ClassVar[bool] = True
    clients: ClassVar[Clients]
    topic: ClassVar[str]
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
        try:
            producer.produce(
                self.topic,
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
            found = self._producers[os.getpid()] = self.clients.producer()
        return found

    def _failed(self, error: KafkaError | None) -> None:
        what = f"a dead letter can't be written to {self.topic!r}"
        if error is not None and error.fatal():
            self._producers.clear()
        if error is None or error.retriable() or error.fatal() or error.code() in LOCAL:
            # What was begun may still arrive: then it is there twice.
            why = "no answer in time" if error is None else error.str()
            raise ConnectionError(f"{what}: {why}")
        raise HoldfastError(f"{what}: {error.str()} ({error.name()})")
