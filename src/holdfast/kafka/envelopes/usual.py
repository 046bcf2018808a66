"""Records as our own publisher writes them, read by the million.

What is the same in many of them is checked once, and nothing is made that nobody may ask for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from confluent_kafka import Message

from holdfast.kafka.record import MAX_VERSION, RESERVED, Record, record_json
from holdfast.model.event import ForeignEvent, check_stream, check_type

TYPE = "holdfast-type"
VERSION = "holdfast-version"
ID = "holdfast-id"
RECORDED_AT = "holdfast-recorded-at"
"""The headers that a usual record has, in this order, and no others."""


class UsualEvent(ForeignEvent, frozen=True, array_like=True, gc=False):
    """An event with what its record says beside it, so that the record can be made from it."""

    topic: str
    partition: int
    timestamp_ms: int
    version_text: bytes
    recorded_at_text: bytes

    @property
    def record(self) -> Record:
        """The record, to the letter."""
        return Record(
            self.topic,
            self.partition,
            self.position - 1,
            self.timestamp_ms if self.timestamp_ms > 0 else None,
            self.stream.encode(),
            self.data.encode(),
            (
                (TYPE, self.type.encode()),
                (VERSION, self.version_text),
                (ID, self.id_text.encode()),
                (RECORDED_AT, self.recorded_at_text),
            ),
        )

    def kept(self) -> str:
        return record_json(self.record)


def usual_event(message: Message, topic: str, partition: int) -> UsualEvent | None:
    """The event in a message of this partition; None where it is not usual: others decide then."""
    given: Any = message
    try:
        (name_1, type_name), (name_2, version), (name_3, id_), (name_4, at) = given.headers()
        if name_1 != TYPE or name_2 != VERSION or name_3 != ID or name_4 != RECORDED_AT:
            return None
        moment = _moment(at.decode())
        value = given.value()
        if not (moment.tzinfo is UTC and version.isdigit() and len(version) < 20 and _is_id(id_)):
            return None
        number = int(version)
        if number > MAX_VERSION:
            return None
        _scan(value)
        return UsualEvent(
            given.offset() + 1,
            _stream_of(given.key()),
            number,
            id_.decode(),
            _type_of(type_name),
            value.decode(),
            "{}",
            moment,
            topic,
            partition,
            given.timestamp()[1],
            version,
            at,
        )
    except Exception:
        return None


_moment = datetime.fromisoformat
_is_id = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_scan = msgspec.json.Decoder(msgspec.Raw).decode


@lru_cache(maxsize=50_000)
def _stream_of(key: bytes) -> str:
    return check_stream(key.decode())


@lru_cache(maxsize=1024)
def _type_of(name: bytes) -> str:
    if name.startswith(RESERVED.encode()):
        raise ValueError("it is not for events of others")
    return check_type(name.decode())
