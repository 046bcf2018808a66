"""The clients of Kafka that a source works with, made by its settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from holdfast.errors import ConfigError
from holdfast.kafka.errors import without_secrets

OURS = {
    "bootstrap.servers": "bootstrap",
    "group.id": "group",
    "enable.auto.commit": None,
    "enable.auto.offset.store": None,
    "auto.offset.reset": "start",
    "enable.partition.eof": None,
}
"""Settings of the client that are not for `settings`, and which argument says the same."""

CONSUMER_ONLY = (
    "partition.assignment.strategy",
    "group.protocol",
    "group.instance.id",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "isolation.level",
)
"""Settings that other clients complain about."""

MAX_RECORD_BYTES = 100_000_000

C = TypeVar("C")

logger = logging.getLogger("holdfast.kafka")


class Clients:
    """Makes clients for one source."""

    def __init__(self, bootstrap: str, group: str, settings: Mapping[str, Any]) -> None:
        self.bootstrap, self._group, self._settings = bootstrap, group, settings
        self._admins: dict[int, AdminClient] = {}

    def check(self) -> None:
        """Raises ConfigError where the settings are wrong, as far as that can be known yet."""
        if not all(isinstance(name, str) for name in self._settings):
            raise ConfigError("settings has a name that is no text")
        for name, ours in OURS.items():
            if name in self._settings:
                hint = f"say {ours}=… instead" if ours else "holdfast sets it itself"
                raise ConfigError(f"settings has {name!r}: {hint}")
        # The client looks at them, without what it would open files for.
        tried = {n: v for n, v in self._settings.items() if n != "security.protocol"}
        self._made(Consumer, {**tried, "group.id": self._group}).close()

    def reader(self) -> Consumer:
        """A consumer that is in no group, for one partition."""
        return self._consumer(
            {
                "group.id": self._group,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 16_384,
                "fetch.queue.backoff.ms": 10,
            }
        )

    def member(self, group: str) -> Consumer:
        """A consumer that is in a group, for its assignments alone."""
        settings = dict(self._settings)
        if settings.get("group.protocol") != "consumer":
            settings.setdefault("partition.assignment.strategy", "cooperative-sticky")
        return self._consumer({**settings, "group.id": group, "auto.offset.reset": "latest"})

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are assigned to members, and revoked, one by one."""
        if self._settings.get("group.protocol") == "consumer":
            return True
        strategy = self._settings.get("partition.assignment.strategy", "cooperative-sticky")
        return "cooperative" in strategy

    def producer(self) -> Producer:
        """A producer that writes each record once, and in order."""
        config = {
            **self._for_others(),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
        # What was read can be written: the brokers say how large a record may be.
        config.setdefault("message.max.bytes", MAX_RECORD_BYTES)
        return self._made(Producer, config)

    def admin(self) -> AdminClient:
        """The client that asks questions: one a process, because it does not survive a fork."""
        found = self._admins.get(os.getpid())
        if found is None:
            found = self._admins[os.getpid()] = self._made(AdminClient, self._for_others())
        return found

    def shown(self, text: str) -> str:
        """A text as logs and errors may show it."""
        return without_secrets(text, self._settings)

    def _consumer(self, settings: Mapping[str, Any]) -> Consumer:
        config = {
            **self._settings,
            **settings,
            "bootstrap.servers": self.bootstrap,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        return self._made(Consumer, config)

    def _for_others(self) -> dict[str, Any]:
        """The settings of a client that is no consumer."""
        kept = {n: v for n, v in self._settings.items() if n not in CONSUMER_ONLY}
        return {**kept, "bootstrap.servers": self.bootstrap}

    def _made(self, client: Callable[..., C], config: Mapping[str, Any]) -> C:
        try:
            return client(dict(config), logger=logger)
        except (KafkaException, ValueError, TypeError) as error:
            raise ConfigError(self.shown(f"the settings of Kafka are wrong: {error}")) from None
