"""RecordDecoder: turns the records of a topic into events."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from holdfast.kafka.envelopes.envelope import Envelope
from holdfast.kafka.envelopes.holdfast import Holdfast, published_event
from holdfast.kafka.record import (
    RESERVED,
    Decoded,
    KafkaEvent,
    Record,
    raw_event,
    record_from_json,
    undecodable,
    unreadable_event,
)
from holdfast.model.event import ForeignEvent, RawEvent
from holdfast.model.foreign_feed import NOTHING, Undecodable

UNREADABLE_HEADERS = [("holdfast-unreadable-headers", b"")]
"""Stands in for headers that the client can't read."""


class RecordDecoder:
    """Decodes the records of one source.

    `tombstones` is the event type of a record without a value; None passes over such records. A
    record that can't be decoded becomes an event of type UNDECODABLE, and nothing of it is lost.
    """

    def __init__(self, envelope: Envelope, *, contiguous: bool, tombstones: str | None) -> None:
        self._envelope, self._contiguous, self._tombstones = envelope, contiguous, tombstones
        self._has_fast_path = type(envelope) is Holdfast and tombstones is None

    def event_in(self, message: Message, topic: str, partition: int) -> ForeignEvent | None:
        """The event in a message of this partition; None where there is nothing to apply."""
        if self._has_fast_path:
            event = published_event(message, topic, partition)
            if event is not None:
                return event
        return self.event_of(record_of(message))

    def event_of(self, record: Record) -> KafkaEvent | None:
        """The event in a record; None where there is nothing to apply."""
        try:
            if record.value is None:
                return self._tombstone(record)
            decoded = self._envelope.decode(record)
            if decoded is None:
                return None
            if str(decoded.type).startswith(RESERVED) or decoded.type == self._tombstones:
                problem = "its type stands for records that are no events; give it another"
                raise undecodable(record, problem)
            return raw_event(record, decoded, contiguous=self._contiguous)
        except Undecodable as error:
            return unreadable_event(record, self._lane_of(record), error)

    def event_of_kept(self, kept: str) -> RawEvent:
        """The event in a record that is kept as text; of type NOTHING where there is none now."""
        record = record_from_json(kept)
        event = self.event_of(record)
        if event is not None:
            return event
        return self._unnumbered(record, NOTHING)

    def _tombstone(self, record: Record) -> KafkaEvent | None:
        return None if self._tombstones is None else self._unnumbered(record, self._tombstones)

    def _unnumbered(self, record: Record, type_name: str) -> KafkaEvent:
        """An event without data, outside of its stream's versions."""
        decoded = Decoded(stream=self._lane_of(record), type=type_name, data="null", version=0)
        return raw_event(record, decoded, contiguous=True)

    def _lane_of(self, record: Record) -> str:
        """The stream, where the envelope can tell it; else a lane for this record alone."""
        own = f"(undecodable) {record.topic}[{record.partition}]@{record.offset}"
        return self._envelope.stream_of(record) or own


def record_of(message: Message) -> Record:
    """A message of the client as a record."""
    _, timestamp = message.timestamp()
    given: Any = message
    try:
        headers: Any = message.headers()
    except (SystemError, UnicodeError):
        headers = UNREADABLE_HEADERS  # The client can't return a name that is not UTF-8.
    return Record(
        given.topic(),
        given.partition(),
        given.offset(),
        timestamp if timestamp > 0 else None,
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
    )
