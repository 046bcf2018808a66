"""Accounts whose events are on Kafka: what each event is, and what must come of all of them.

Nothing about an event is random: its account and its version determine the rest. So a producer
that was killed can go on, and a check needs no list of what was produced.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

import msgspec
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from holdfast.kafka import KafkaSource
from tests.world.app import Moved
from tests.world.wanted import Topic

IDS = UUID("5e6f7a10-94a5-5d0e-a1c4-5a1f0f3d2b77")
QUERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Record:
    """One event as Kafka's client takes it."""

    key: str
    value: bytes
    headers: dict[str, str | bytes | None]


def account(number: int) -> str:
    return f"account-{number}"


def amount(stream: str, version: int) -> int:
    """What an event adds to the sum; it may be below zero."""
    number = zlib.crc32(f"{stream}/{version}".encode())
    size = number % 1_000 + 1
    return -size if number >> 16 & 3 == 0 else size


def record(stream: str, version: int, **settings: str) -> Record:
    """The event of an account at a version; the settings say what its handler meets."""
    headers: dict[str, str | bytes | None] = {
        "holdfast-type": Moved.__name__,
        "holdfast-version": str(version),
        "holdfast-id": str(uuid5(IDS, f"{stream}/{version}")),
    }
    value = msgspec.json.encode(Moved(amount(stream, version), **settings))
    return Record(stream, value, headers)


@dataclass(frozen=True, slots=True)
class History:
    """A number of events over a number of accounts, which take turns."""

    events: int
    accounts: int

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Each event's account and version, in the order in which they are produced."""
        for number in range(self.events):
            yield account(number % self.accounts), number // self.accounts + 1

    def versions(self) -> dict[str, int]:
        """Each account's last version."""
        return dict(self)


def group_of(topic: str) -> str:
    """Of this topic's consumers alone: other tests have theirs on the same broker."""
    return f"of-{topic}"


def source_of(topic: Topic) -> KafkaSource:
    return KafkaSource(
        topic.name,
        bootstrap=topic.bootstrap,
        group=group_of(topic.name),
        first_version=1,
        settings=topic.settings,
    )


def quick_settings(bootstrap: str) -> dict[str, Any]:
    """Settings of a consumer whose death is noticed as soon as the broker can."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    node = min(admin.list_topics(timeout=QUERY_SECONDS).brokers)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
    described = admin.describe_configs([resource])[resource].result(QUERY_SECONDS)
    least = int(described["group.min.session.timeout.ms"].value)
    return {"session.timeout.ms": max(2_000, least), "heartbeat.interval.ms": 250}
