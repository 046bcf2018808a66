"""KafkaPublisher: the journal, or some of its events, in a topic for others to read."""

from __future__ import annotations

import inspect
import os
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from holdfast.errors import ConfigError
from holdfast.kafka.errors import without_secrets
from holdfast.kafka.publish.gapless_producer import Pipe, producer
from holdfast.model.event import RawEvent
from holdfast.model.projection import CATCH_ALL, Projection, Publisher, marks_of, on
from holdfast.runtime.engines.engine import BatchRefused, EventFailed

Publish = Callable[[RawEvent], None]

DEFAULTS: Mapping[str, Any] = {
    # As Java's clients do it: a stream is in the partition where they look for it.
    "partitioner": "murmur2_random",
    # What a journal takes by default, and a topic by default, with room for stream and metadata.
    "message.max.bytes": 1_048_000,
    "batch.size": 1_000_000,
    "log_level": 3,
}
"""Settings of the client that `settings` may change."""

OURS: Mapping[str, str | None] = {
    "bootstrap.servers": "bootstrap",
    "metadata.broker.list": "bootstrap",
    "message.timeout.ms": "timeout_seconds",
    "delivery.timeout.ms": "timeout_seconds",
    "acks": None,
    "request.required.acks": None,
    "enable.idempotence": None,
    "enable.gapless.guarantee": None,
    "retries": None,
    "message.send.max.retries": None,
    "transactional.id": None,
    "delivery.report.only.error": None,
    "on_delivery": None,
    "error_cb": None,
    "logger": None,
}
"""Those that it may not, and which attribute says the same."""

TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class KafkaPublisher(Publisher):
    """Publishes events of the journal to `topic`: derive a class, and register it with
    `@app.projection()`.

    `bootstrap` is HOST:PORT, or several with commas. `events` are the classes or type names to
    publish, by default all. `settings` are for the client itself (TLS, SASL, compression, limits).
    `timeout_seconds` is how long the brokers may leave records without any acknowledgement.

    An event is a record as `holdfast.kafka.Holdfast` reads it: the stream is its key, the payload
    its value, the rest is in headers. A checkpoint moves when all brokers that should have the
    records have them, so that none is lost. Some may come twice, and within a stream never a
    version before the one that precedes it: who passes over versions that are not greater than the
    last sees each once and in order. Brokers that are away are waited for; an event that they
    refuse goes to the policy.
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
            # Whoever gives up does so with all that is behind it, and closes the pipe.
            "message.timeout.ms": 0,
        }
        self._check_settings()
        self._batch_bytes = int(self._settings["batch.size"])
        # By process: the client does not survive a fork.
        self._idle: defaultdict[int, deque[Pipe]] = defaultdict(deque)
        self._alone_for = 0
        """So many events more are sent one by one: one of them was refused, or all together."""

    @contextmanager
    def batch(self) -> Iterator[Publish]:
        """The block in which the events of one transaction are published."""
        pipe: Pipe | None = None
        sent = 0

        def publish(event: RawEvent) -> None:
            nonlocal pipe, sent
            if pipe is None:
                pipe = self._take()
            sent += 1
            try:
                pipe.publish(event)
            except EventFailed:
                self._alone_for = 0
                raise
            if pipe.singly:
                self._passed()

        try:
            yield publish
            if pipe is not None:
                pipe.flush()
        except BatchRefused:
            self._alone_for = sent
            raise
        finally:
            if pipe is not None:
                self._put_back(pipe)

    def _take(self) -> Pipe:
        idle = self._idle[os.getpid()]
        if not self._alone_for and idle:
            return idle.pop()
        return Pipe(
            {**self._settings, "batch.size": self._batch_bytes},
            self.topic,
            singly=self._alone_for > 0,
            timeout_seconds=self.timeout_seconds,
            shown=self._shown,
        )

    def _put_back(self, pipe: Pipe) -> None:
        if pipe.is_clean and not pipe.singly:
            self._idle[os.getpid()].append(pipe)
        else:
            pipe.close()

    def _passed(self) -> None:
        """An event was taken alone. If all of them are, they were too large together."""
        if self._alone_for:
            self._alone_for -= 1
            if not self._alone_for:
                self._batch_bytes = max(1, self._batch_bytes // 4)

    def _shown(self, text: str) -> str:
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
            if name != "published" and marks_of(inspect.getattr_static(type(self), name)):
                raise ConfigError(
                    f"{where}.{name} is marked with @on(…), and a publisher has no handlers of "
                    "your own; name what is to be published in `events`"
                )

    def _check_settings(self) -> None:
        where = type(self).__qualname__
        for name, ours in OURS.items():
            if name in self.settings:
                hint = f"say {ours} = … instead" if ours else "holdfast sets it itself"
                raise ConfigError(f"{where}.settings has {name!r}: {hint}")
        if self._settings["partitioner"] == "random":
            raise ConfigError(
                f"{where}.settings has 'partitioner': 'random', which scatters a stream over "
                "partitions and loses its order; leave it out"
            )
        # Not what the client opens files for: they need not be where nothing is published.
        offline = {"bootstrap.servers", "security.protocol"}
        tried = {name: value for name, value in self._settings.items() if name not in offline}
        producer({**tried, "enable.idempotence": True}, self._shown)
