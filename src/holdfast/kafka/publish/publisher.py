"""KafkaPublisher: publishes events of the journal to a topic."""

from __future__ import annotations

import inspect
import os
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from holdfast.errors import ConfigError
from holdfast.kafka.clients import SET_BY_HOLDFAST, refuse_own_settings
from holdfast.kafka.errors import without_secrets
from holdfast.kafka.publish.gapless_producer import GaplessProducer, new_producer
from holdfast.model.event import RawEvent
from holdfast.model.projection import CATCH_ALL, Projection, Publisher, handled_types, on
from holdfast.runtime.engines.engine import BatchRefused, EventFailed

Publish = Callable[[RawEvent], None]

DEFAULTS: Mapping[str, Any] = {
    # The default of Java's clients, so that they find a stream in the same partition.
    "partitioner": "murmur2_random",
    # The default maximum of a journal's event and of a topic, with room for stream and metadata.
    "message.max.bytes": 1_048_000,
    "batch.size": 1_000_000,
    "log_level": 3,
}
"""Settings of the client that `settings` may override."""

OWN_SETTINGS: Mapping[str, str] = {
    "bootstrap.servers": "say bootstrap = … instead",
    "metadata.broker.list": "say bootstrap = … instead",
    "message.timeout.ms": "say timeout_seconds = … instead",
    "delivery.timeout.ms": "say timeout_seconds = … instead",
} | dict.fromkeys(
    (
        *("acks", "request.required.acks", "retries", "message.send.max.retries"),
        *("enable.idempotence", "enable.gapless.guarantee", "transactional.id"),
        *("delivery.report.only.error", "on_delivery", "error_cb", "logger"),
    ),
    SET_BY_HOLDFAST,
)
"""Settings of the client that `settings` may not have, and what to do instead."""

TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class KafkaPublisher(Publisher):
    """Publishes events of the journal to `topic`: derive a class, and register it with
    `@app.projection()`.

    `bootstrap` is HOST:PORT, or several with commas. `events` are the classes or type names to
    publish, by default all. `settings` are for the client itself (TLS, SASL, compression, limits).
    `timeout_seconds` is the maximum time without any acknowledgement of the brokers.

    An event is a record as `holdfast.kafka.Holdfast` reads it: the stream is its key, the payload
    its value, and the rest is in headers. The checkpoint moves when all in-sync replicas have the
    records, so that none is lost. A record may come twice, but within a stream no version comes
    before the one that precedes it: a reader that passes over versions that are not greater than
    the last sees each event once and in order. While the brokers are away, the publisher waits; an
    event that they refuse goes to the policy.
    """

    topic: ClassVar[str]
    bootstrap: ClassVar[str]
    events: ClassVar[type | str | Sequence[type | str]] = CATCH_ALL
    settings: ClassVar[Mapping[str, Any]] = {}
    timeout_seconds: ClassVar[float] = 10.0
    replayable: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        events = cls.events
        if not isinstance(events, Sequence) or isinstance(events, str):
            events = (events,)
        if not events:
            raise ConfigError(f"{cls.__qualname__}.events is empty; leave it out to publish all")

        def published(self: KafkaPublisher, event: RawEvent, publish: Publish) -> None:  # noqa: ARG001
            publish(event)

        cls.published = on(*events)(published)  # type: ignore[attr-defined]

    def __init__(self) -> None:
        self._check()
        self._settings = {
            **DEFAULTS,
            **self.settings,
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            # The producer gives up all its records together, by `timeout_seconds`, and is closed.
            "message.timeout.ms": 0,
        }
        self._check_settings()
        self._batch_bytes = int(self._settings["batch.size"])
        # By process: the client does not survive a fork.
        self._idle: defaultdict[int, deque[GaplessProducer]] = defaultdict(deque)
        self._left_singly = 0
        """How many events are still to be sent one by one, after their batch was refused."""

    @contextmanager
    def batch(self) -> Iterator[Publish]:
        """The block in which the events of one transaction are published."""
        producer: GaplessProducer | None = None
        sent = 0

        def publish(event: RawEvent) -> None:
            nonlocal producer, sent
            if producer is None:
                producer = self._take()
            sent += 1
            try:
                producer.publish(event)
            except EventFailed:
                self._left_singly = 0
                raise
            if producer.singly:
                self._published_singly()

        try:
            yield publish
            if producer is not None:
                producer.flush()
        except BatchRefused:
            self._left_singly = sent
            raise
        finally:
            if producer is not None:
                self._put_back(producer)

    def _take(self) -> GaplessProducer:
        idle = self._idle[os.getpid()]
        if not self._left_singly and idle:
            return idle.pop()
        return GaplessProducer(
            {**self._settings, "batch.size": self._batch_bytes},
            self.topic,
            singly=self._left_singly > 0,
            timeout_seconds=self.timeout_seconds,
            mask=self._masked,
        )

    def _put_back(self, producer: GaplessProducer) -> None:
        if producer.is_clean and not producer.singly:
            self._idle[os.getpid()].append(producer)
        else:
            producer.close()

    def _published_singly(self) -> None:
        """Counts down; if the brokers take every event alone, the batch was too large."""
        if self._left_singly:
            self._left_singly -= 1
            if not self._left_singly:
                self._batch_bytes = max(1, self._batch_bytes // 4)

    def _masked(self, text: str) -> str:
        return without_secrets(text, self.settings)

    def _check(self) -> None:
        where = type(self).__qualname__
        topic = getattr(self, "topic", None)
        if not isinstance(topic, str) or not TOPIC.fullmatch(topic):
            raise ConfigError(
                f"{where}.topic must name a topic: 1 to 249 letters, digits, '.', '_' or '-'"
            )
        bootstrap = getattr(self, "bootstrap", None)
        if not isinstance(bootstrap, str) or not bootstrap.strip():
            raise ConfigError(f"{where}.bootstrap must be HOST:PORT, or several with commas")
        if not isinstance(self.timeout_seconds, int | float) or not self.timeout_seconds > 0:
            raise ConfigError(f"{where}.timeout_seconds must be a number more than 0")
        if not isinstance(self.settings, Mapping):
            raise ConfigError(f"{where}.settings must map names of the client's settings to values")
        if type(self).lane is not Projection.lane:
            raise ConfigError(f"{where} has a lane(); a topic keeps the order of streams")
        for name in dir(type(self)):
            if name != "published" and handled_types(inspect.getattr_static(type(self), name)):
                raise ConfigError(
                    f"{where}.{name} is marked with @on(…), and a publisher has no handlers of "
                    "your own; name what is to be published in `events`"
                )

    def _check_settings(self) -> None:
        where = type(self).__qualname__
        refuse_own_settings(self.settings, OWN_SETTINGS, where=f"{where}.settings")
        if self._settings["partitioner"] == "random":
            raise ConfigError(
                f"{where}.settings has 'partitioner': 'random', which scatters a stream over "
                "partitions and loses its order; leave it out"
            )
        # With the security protocol the client would open files, which need not exist here.
        online = {"bootstrap.servers", "security.protocol"}
        tried = {name: value for name, value in self._settings.items() if name not in online}
        new_producer({**tried, "enable.idempotence": True}, self._masked)
