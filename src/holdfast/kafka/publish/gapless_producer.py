"""GaplessProducer: writes the events of a stream to a topic in order, and without a gap.

A later record of a stream must not overtake one that was refused or given up: a reader that keeps
versions would take the earlier one for a duplicate when it arrives at last. So the client stops for
good at the first record that it can't deliver (`enable.gapless.guarantee`). A broker refuses the
records that were on their way behind it, because an idempotent producer numbers its records. But a
broker that has no record of a producer in a partition accepts any number there. So the producer
waits for its first record in each partition before it sends more to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.clients import new_client
from holdfast.kafka.envelopes.holdfast import Holdfast
from holdfast.kafka.errors import error_of, failure
from holdfast.model.event import RawEvent
from holdfast.runtime.engines.engine import BatchRefused, EventFailed

logger = logging.getLogger("holdfast.kafka.publisher")
# A fatal error is also raised, and its handler knows more to log.
logger.addFilter(lambda record: not (isinstance(record.args, tuple) and "FATAL" in record.args))

REFUSALS = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
    )
)
"""Errors of a record itself, or of the records that were sent together with it."""

CONSEQUENCES = frozenset((KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE))
"""Errors of a record that follow from the refusal of another one."""

REFRESH_SECONDS = 600.0
"""Interval at which a producer waits for first records again: a broker may have forgotten it."""

FLUSH_SECONDS = 0.25
"""Timeout of one wait for acknowledgements."""

_encode: Callable[[RawEvent], tuple[bytes, bytes, Any]] = Holdfast().encode


class RecordRefused(HoldfastError):
    """A broker, or the client itself, refuses an event as a record."""


class GaplessProducer:
    """A producer that is used until a record fails, by one thread at a time.

    With `singly`, it waits for each record, so that it knows which one is refused.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        singly: bool,
        timeout_seconds: float,
        mask: Callable[[str], str],
    ) -> None:
        """`timeout_seconds` is the maximum time without any acknowledgement; `mask` removes
        secrets from texts.

        Raises ConfigError; it does not ask the brokers yet.
        """
        self.singly = singly
        self._topic, self._timeout_seconds, self._mask = topic, timeout_seconds, mask
        self._bootstrap = settings["bootstrap.servers"]
        self._sent = self._acknowledged = 0
        self._errors: list[KafkaError] = []
        self._is_broken = False
        self._client_error = ""
        self._partition_count = 0
        self._started_partitions: set[int] = set()
        self._started_streams: set[str] = set()
        self._refresh_at = 0.0
        self._producer = new_producer(
            {
                **settings,
                # No record follows one that is waited for.
                "enable.idempotence": not singly,
                "enable.gapless.guarantee": not singly,
                "on_delivery": self._on_delivery,
                "error_cb": self._on_error,
            },
            mask,
        )

    @property
    def is_clean(self) -> bool:
        """Whether every record is acknowledged, and more can be sent."""
        return self._acknowledged == self._sent and not self._is_broken

    def publish(self, event: RawEvent) -> None:
        """Sends one event. Raises EventFailed if it is refused, else as `flush`."""
        if not self.singly and time.monotonic() >= self._refresh_at:
            self._refresh()
        key, value, headers = _encode(event)
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, headers=headers)
                break
            except BufferError:  # The client's queue is full.
                self.flush()
            except KafkaException as error:
                raise self._failure(error_of(error), event) from None
        self._sent += 1
        if self.singly:
            self.flush(event)
        elif (
            len(self._started_partitions) < self._partition_count
            and event.stream not in self._started_streams
        ):
            self.flush()
            self._started_streams.add(event.stream)

    def flush(self, alone: RawEvent | None = None) -> None:
        """Returns when every record is acknowledged.

        Raises EventFailed if `alone`, the only event that was sent, is to blame. After any other
        error the producer can only be closed: StoreUnavailable if no event is to blame,
        BatchRefused if one of several is, HoldfastError if the operator has to act.
        """
        acknowledged, until = self._acknowledged, time.monotonic() + self._timeout_seconds
        while self._acknowledged < self._sent:
            left = self._await_acknowledgements()
            if self._errors:
                # The cause counts, not its consequences, if it is known.
                causes = (e for e in self._errors if e.code() not in CONSEQUENCES)
                error = next(causes, self._errors[0])
                if alone is not None:  # The producer can go on without it.
                    self._sent -= 1
                    self._errors.clear()
                raise self._failure(error, alone)
            if self._acknowledged > acknowledged:
                acknowledged, until = self._acknowledged, time.monotonic() + self._timeout_seconds
            elif not left or time.monotonic() >= until:
                raise StoreUnavailable(
                    self._mask(
                        f"Kafka at {self._bootstrap} has not acknowledged records of topic "
                        f"{self._topic!r} for {self._timeout_seconds:g} s{self._client_error}"
                    )
                )

    def close(self) -> None:
        """Drops the records that are not acknowledged; none of them is sent any more."""
        with suppress(KafkaException):
            self._producer.purge()
        del self._producer

    def _refresh(self) -> None:
        """Counts the partitions, and forgets in which of them it has started."""
        try:
            found = self._producer.list_topics(self._topic, timeout=self._timeout_seconds)
        except KafkaException as error:
            with suppress(KafkaException, SystemError):
                self._producer.poll(0)  # Its error callback may say why.
            what = f"Kafka at {self._bootstrap} does not answer"
            raise self._masked_failure(error_of(error), what) from None
        topic = found.topics[self._topic]
        if topic.error is not None or not topic.partitions:
            why = "" if topic.error is None else f" ({topic.error.str()})"
            raise StoreUnavailable(
                f"topic {self._topic!r} is not at {self._bootstrap}{why}; when it is made, "
                "publishing goes on by itself"
            )
        self._partition_count = len(topic.partitions)
        self._started_partitions.clear()
        self._started_streams.clear()
        self._refresh_at = time.monotonic() + REFRESH_SECONDS

    def _await_acknowledgements(self) -> int:
        """Waits for acknowledgements; returns how many records still have none."""
        try:
            return self._producer.flush(FLUSH_SECONDS)
        except (KafkaException, SystemError) as raised:
            # The client raises a fatal error and calls back meanwhile, which Python forbids.
            error = raised.__cause__ if isinstance(raised, SystemError) else raised
            with suppress(KafkaException, SystemError):
                self._producer.flush(FLUSH_SECONDS)  # A delivery report may say more.
            self._errors.append(
                error_of(error)
                if isinstance(error, KafkaException)
                else KafkaError(KafkaError._FATAL)
            )
            return 0

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
            return
        self._acknowledged += 1
        if len(self._started_partitions) < self._partition_count:
            partition = message.partition()
            if partition is not None:
                self._started_partitions.add(partition)

    def _on_error(self, error: KafkaError) -> None:
        self._client_error = f"; the client says: {error.str()} ({error.name()})"

    def _failure(self, error: KafkaError, event: RawEvent | None) -> Exception:
        """What an error means, and for which event, if that is known."""
        what = f"Kafka at {self._bootstrap} does not take records for topic {self._topic!r}"
        if error.code() in REFUSALS and event is not None:
            return EventFailed(event, self._refused(error, event))
        self._is_broken = True
        if error.code() in REFUSALS | CONSEQUENCES and not self.singly:
            batch = BatchRefused()
            batch.__cause__ = RecordRefused(self._mask(f"{what}: {error.str()} ({error.name()})"))
            return batch
        return self._masked_failure(error, what)

    def _refused(self, error: KafkaError, event: RawEvent) -> RecordRefused:
        why = f"{error.str()} ({error.name()})"
        if error.code() == KafkaError.INVALID_RECORD:
            text = (
                f"the brokers find an event invalid for topic {self._topic!r}: {why}. See what "
                "they check, then requeue it"
            )
        else:
            text = (
                f"Kafka does not take an event of {len(event.data.encode()):,} bytes for topic "
                f"{self._topic!r}: {why}. Raise the topic's max.message.bytes, and "
                "message.max.bytes in settings, then requeue it"
            )
        return RecordRefused(self._mask(text))

    def _masked_failure(self, error: KafkaError, what: str) -> HoldfastError:
        found = failure(error, what)
        return type(found)(self._mask(f"{found}{self._client_error}"))


def new_producer(settings: Mapping[str, Any], mask: Callable[[str], str]) -> Producer:
    """A producer; raises ConfigError if the client refuses the settings."""
    return new_client(Producer, settings, logger=logger, mask=mask)
