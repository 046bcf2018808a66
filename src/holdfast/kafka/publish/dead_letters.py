"""Dead letters: copies of dead events in a topic, for operators and tools that watch it.

The transaction that parks a dead event also writes a message about it to the queue, and a sink
delivers the message. So there is a dead letter if and only if the event is dead, and it arrives at
least once.
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
"""Prefix of the headers that a dead letter has in addition to those of its record."""

DELIVERY_SECONDS = 30.0
"""Timeout of the brokers' acknowledgement of one dead letter."""

TEMPORARY = frozenset(
    (
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._QUEUE_FULL,
    )
)
"""Errors of the connection, which pass, and not of the dead letter."""


class _Data(msgspec.Struct):
    """The data of a message about a dead event; `record` is the record as JSON."""

    record: str
    lane: str
    error_type: str
    error_message: str
    attempts: int


def dead_letter(dead: DeadEvent) -> DeadLetter:
    """The message about a dead event."""
    data = _Data(dead.kept, dead.lane, dead.error_type, dead.error_message, dead.attempts)
    return DeadLetter(
        topic=_message_topic(dead.projection),
        key=dead.event.stream,
        id=uuid4(),
        data=msgspec.json.encode(data).decode(),
        at=dead.at,
    )


def dead_letters_sink(clients: Clients, topic: str, projection: str) -> type[Projection]:
    """The sink that writes a projection's dead events to a dead-letter topic."""

    class DeadLetters(_DeadLetters):
        """Writes the records of dead events to a topic, with headers that say why they died."""

        @on(_message_topic(projection))
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
        """Writes one dead letter; returns when the brokers have it."""
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
        except KafkaException as error:
            raise self._failure(error_of(error)) from error
        except BufferError as error:
            raise self._failure(None) from error
        producer.flush(DELIVERY_SECONDS)
        if not result or result[0] is not None:
            raise self._failure(result[0] if result else None)

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
        # One per process: the client does not survive a fork.
        found = self._producers.get(os.getpid())
        if found is None:
            found = self._producers[os.getpid()] = self.clients.producer()
        return found

    def _failure(self, error: KafkaError | None) -> Exception:
        """An error as ours; None stands for no answer in time."""
        what = f"a dead letter can't be written to {self.topic!r}"
        if error is not None and error.fatal():
            self._producers.clear()
        if error is None or error.retriable() or error.fatal() or error.code() in TEMPORARY:
            # The record may still arrive: then the topic has it twice.
            why = "no answer in time" if error is None else error.str()
            return ConnectionError(f"{what}: {why}")
        return HoldfastError(f"{what}: {error.str()} ({error.name()})")


def _message_topic(projection: str) -> str:
    """The topic of the messages about a projection's dead events."""
    return f"holdfast.dead_letters.{projection}"
