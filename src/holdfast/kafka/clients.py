"""The Kafka clients of one source, made from its settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from holdfast.errors import ConfigError
from holdfast.kafka.errors import error_of, without_secrets

SET_BY_HOLDFAST = "holdfast sets it itself"

OWN_SETTINGS = {
    "bootstrap.servers": "say bootstrap=… instead",
    "group.id": "say group=… instead",
    "enable.auto.commit": SET_BY_HOLDFAST,
    "enable.auto.offset.store": SET_BY_HOLDFAST,
    "auto.offset.reset": "say start=… instead",
    "enable.partition.eof": SET_BY_HOLDFAST,
}
"""Settings of the client that `settings` may not have, and what to do instead."""

CONSUMER_ONLY = (
    "partition.assignment.strategy",
    "group.protocol",
    "group.instance.id",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "isolation.level",
)
"""Settings that other clients than consumers complain about."""

MAX_RECORD_BYTES = 100_000_000
"""Default maximum of a record: high enough for all that was read. The brokers set the limit."""

C = TypeVar("C")

logger = logging.getLogger("holdfast.kafka")


class Clients:
    """Makes the clients of one source."""

    def __init__(self, bootstrap: str, group: str, settings: Mapping[str, Any]) -> None:
        self.bootstrap, self._group, self._settings = bootstrap, group, settings
        self._admins: dict[int, AdminClient] = {}

    def check(self) -> None:
        """Raises ConfigError if the settings are wrong, as far as the client can tell offline."""
        if not all(isinstance(name, str) for name in self._settings):
            raise ConfigError("settings has a name that is no text")
        refuse_own_settings(self._settings, OWN_SETTINGS, where="settings")
        # With the security protocol the client would open files.
        tried = {n: v for n, v in self._settings.items() if n != "security.protocol"}
        self._new(Consumer, {**tried, "group.id": self._group}).close()

    def reader(self) -> Consumer:
        """A consumer outside of any group, which reads one partition."""
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
        """A consumer that joins a group for its assignments, and reads nothing."""
        settings = dict(self._settings)
        if settings.get("group.protocol") != "consumer":
            settings.setdefault("partition.assignment.strategy", "cooperative-sticky")
        return self._consumer({**settings, "group.id": group, "auto.offset.reset": "latest"})

    @property
    def is_cooperative(self) -> bool:
        """Whether the group assigns and revokes partitions one by one."""
        if self._settings.get("group.protocol") == "consumer":
            return True
        strategy = self._settings.get("partition.assignment.strategy", "cooperative-sticky")
        return "cooperative" in strategy

    def producer(self) -> Producer:
        """A producer that writes each record once, and in order."""
        config = {
            **self._without_consumer_settings(),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
        config.setdefault("message.max.bytes", MAX_RECORD_BYTES)
        return self._new(Producer, config)

    def admin(self) -> AdminClient:
        """The client that asks the brokers: one per process, as it does not survive a fork."""
        found = self._admins.get(os.getpid())
        if found is None:
            config = self._without_consumer_settings()
            found = self._admins[os.getpid()] = self._new(AdminClient, config)
        return found

    def masked(self, text: str) -> str:
        """A text without the secrets of the settings."""
        return without_secrets(text, self._settings)

    def _consumer(self, settings: Mapping[str, Any]) -> Consumer:
        config = {
            **self._settings,
            **settings,
            "bootstrap.servers": self.bootstrap,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        return self._new(Consumer, config)

    def _without_consumer_settings(self) -> dict[str, Any]:
        kept = {n: v for n, v in self._settings.items() if n not in CONSUMER_ONLY}
        return {**kept, "bootstrap.servers": self.bootstrap}

    def _new(self, client: Callable[..., C], config: Mapping[str, Any]) -> C:
        return new_client(client, config, logger=logger, mask=self.masked)


def new_client(
    client: Callable[..., C],
    config: Mapping[str, Any],
    *,
    logger: logging.Logger,
    mask: Callable[[str], str],
) -> C:
    """A client of this class; raises ConfigError if it refuses the settings."""
    try:
        return client(dict(config), logger=logger)
    except (KafkaException, ValueError, TypeError) as error:
        # Not as the cause: the client's error may quote a secret.
        text = error_of(error).str() if isinstance(error, KafkaException) else str(error)
        raise ConfigError(mask(f"the settings of Kafka are wrong: {text}")) from None


def refuse_own_settings(settings: Mapping[str, Any], own: Mapping[str, str], *, where: str) -> None:
    """Raises ConfigError if the user's settings have one of our own."""
    for name, hint in own.items():
        if name in settings:
            raise ConfigError(f"{where} has {name!r}: {hint}")
