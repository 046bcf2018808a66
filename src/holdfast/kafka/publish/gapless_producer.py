"""A way into a topic: what goes in comes out in order, and without a gap.

A record that is refused, or given up, must not be overtaken by a later one of its stream: whoever
keeps versions would take the earlier one for a duplicate when it comes at last. So the client stops
for good at the first record that can't be delivered (`enable.gapless.guarantee`), and a broker
refuses what was on the way behind it, because an idempotent producer numbers its records. But a
broker expects no number of a producer that it has no record of. So the first record in every
partition is waited for, before more is sent there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from holdfast.errors import ConfigError, HoldfastError, StoreUnavailable
from holdfast.kafka.envelopes.holdfast import Holdfast
from holdfast.kafka.errors import error_of, failure
from holdfast.model.event import RawEvent
from holdfast.runtime.engines.engine import BatchRefused, EventFailed

logger = logging.getLogger("holdfast.kafka.publisher")
# Fatal errors are also raised, and then told by those who know what follows.
logger.addFilter(lambda record: not (isinstance(record.args, tuple) and "FATAL" in record.args))

REFUSED = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
    )
)
"""What is wrong with a record itself, or with those that were sent together with it."""

CONSEQUENCES = frozenset((KafkaError._FATAL, KafkaError._GAPLESS_GUARANTEE))
"""What follows when another record was refused."""

FORGET_SECONDS = 600.0
"""After so long, a broker may know a producer no more that has sent nothing to a partition."""

WAIT_SECONDS = 0.25
"""How long the client waits for acknowledgements at a time."""

_encode: Callable[[RawEvent], tuple[bytes, bytes, Any]] = Holdfast().encode


class RecordRefused(HoldfastError):
    """A broker, or the client itself, does not take an event as a record."""


class Pipe:
    """A producer, for as long as nothing fails. One thread uses it at a time.

    With `singly`, each record is waited for, so that it is known which one is refused.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        *,
        singly: bool,
        timeout_seconds: float,
        shown: Callable[[str], str],
    ) -> None:
        """`timeout_seconds`: without any answer; `shown` gives texts as others may see them.

        Raises ConfigError; the brokers are not asked yet.
        """
        self.singly = singly
        self._topic, self._timeout_seconds, self._shown = topic, timeout_seconds, shown
        self._bootstrap = settings["bootstrap.servers"]
        self._sent = self._acknowledged = 0
        self._errors: list[KafkaError] = []
        self._is_broken = False
        self._said = ""
        self._partitions = 0
        self._begun: set[int] = set()
        self._streams: set[str] = set()
        self._begin_again_at = 0.0
        self._producer = producer(
            {
                **settings,
                # A single record that is waited for has nobody behind it.
                "enable.idempotence": not singly,
                "enable.gapless.guarantee": not singly,
                "on_delivery": self._delivered,
                "error_cb": self._heard,
            },
            shown,
        )

    @property
    def is_clean(self) -> bool:
        """Whether all that was sent is acknowledged, and more can be."""
        return self._acknowledged == self._sent and not self._is_broken

    def publish(self, event: RawEvent) -> None:
        """Sends one event. Raises EventFailed if it is refused, else as `flush`."""
        if not self.singly and time.monotonic() >= self._begin_again_at:
            self._begin_again()
        key, value, headers = _encode(event)
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, headers=headers)
                break
            except BufferError:  # As much waits as the settings allow.
                self.flush()
            except KafkaException as error:
                raise self._failure(error_of(error), event) from None
        self._sent += 1
        if self.singly:
            self.flush(event)
        elif len(self._begun) < self._partitions and event.stream not in self._streams:
            self.flush()
            self._streams.add(event.stream)

    def flush(self, alone: RawEvent | None = None) -> None:
        """Returns when all that was sent is acknowledged.

        Raises EventFailed if `alone` is to blame, the one event that was sent. Otherwise the pipe
        can only be closed: StoreUnavailable where nobody is to blame, BatchRefused where one of
        several is, HoldfastError where a person has to mend something.
        """
        acknowledged, until = self._acknowledged, time.monotonic() + self._timeout_seconds
        while self._acknowledged < self._sent:
            left = self._serve()
            if self._errors:
                # Not what has only followed from another's refusal, if more is known.
                real = (e for e in self._errors if e.code() not in CONSEQUENCES)
                error = next(real, self._errors[0])
                if alone is not None:  # Nothing of it is left.
                    self._sent -= 1
                    self._errors.clear()
                raise self._failure(error, alone)
            if self._acknowledged > acknowledged:
                acknowledged, until = self._acknowledged, time.monotonic() + self._timeout_seconds
            elif not left or time.monotonic() >= until:
                raise StoreUnavailable(
                    self._shown(
                        f"Kafka at {self._bootstrap} has not acknowledged records of topic "
                        f"{self._topic!r} for {self._timeout_seconds:g} s{self._said}"
                    )
                )

    def close(self) -> None:
        """Gives up what is not acknowledged; nothing of it is sent from now on."""
        with suppress(KafkaException):
            self._producer.purge()
        del self._producer

    def _begin_again(self) -> None:
        """Nothing is known of the partitions, but how many there are."""
        try:
            found = self._producer.list_topics(self._topic, timeout=self._timeout_seconds)
        except KafkaException as error:
            with suppress(KafkaException, SystemError):
                self._producer.poll(0)  # It may have heard why.
            what = f"Kafka at {self._bootstrap} does not answer"
            raise self._shown_failure(error_of(error), what) from None
        topic = found.topics[self._topic]
        if topic.error is not None or not topic.partitions:
            why = "" if topic.error is None else f" ({topic.error.str()})"
            raise StoreUnavailable(
                f"topic {self._topic!r} is not at {self._bootstrap}{why}; when it is made, "
                "publishing goes on by itself"
            )
        self._partitions = len(topic.partitions)
        self._begun.clear()
        self._streams.clear()
        self._begin_again_at = time.monotonic() + FORGET_SECONDS

    def _serve(self) -> int:
        """Takes in acknowledgements; returns how many are missing."""
        try:
            return self._producer.flush(WAIT_SECONDS)
        except (KafkaException, SystemError) as raised:
            # The client raises a fatal error, and calls back while it does, which Python forbids.
            error = raised.__cause__ if isinstance(raised, SystemError) else raised
            with suppress(KafkaException, SystemError):
                self._producer.flush(WAIT_SECONDS)  # There may be a report that says more.
            self._errors.append(
                error_of(error)
                if isinstance(error, KafkaException)
                else KafkaError(KafkaError._FATAL)
            )
            return 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
            return
        self._acknowledged += 1
        if len(self._begun) < self._partitions:
            partition = message.partition()
            if partition is not None:
                self._begun.add(partition)

    def _heard(self, error: KafkaError) -> None:
        self._said = f"; the client says: {error.str()} ({error.name()})"

    def _failure(self, error: KafkaError, event: RawEvent | None) -> Exception:
        """What an error means, and for which event, if that is known."""
        what = f"Kafka at {self._bootstrap} does not take records for topic {self._topic!r}"
        if error.code() in REFUSED and event is not None:
            size = len(event.data.encode())
            refused = RecordRefused(
                self._shown(
                    f"Kafka does not take an event of {size:,} bytes for topic {self._topic!r}: "
                    f"{error.str()} ({error.name()}). Let the topic's max.message.bytes, and "
                    "message.max.bytes in settings, be larger, then requeue it"
                    if error.code() != KafkaError.INVALID_RECORD
                    else f"the brokers find an event invalid for topic {self._topic!r}: "
                    f"{error.str()} ({error.name()}). See what they check, then requeue it"
                )
            )
            return EventFailed(event, refused)
        self._is_broken = True
        if error.code() in REFUSED | CONSEQUENCES and not self.singly:
            batch = BatchRefused()
            batch.__cause__ = RecordRefused(self._shown(f"{what}: {error.str()} ({error.name()})"))
            return batch
        return self._shown_failure(error, what)

    def _shown_failure(self, error: KafkaError, what: str) -> HoldfastError:
        found = failure(error, what)
        return type(found)(self._shown(f"{found}{self._said}"))


def producer(settings: Mapping[str, Any], shown: Callable[[str], str]) -> Producer:
    """A producer; raises ConfigError if the client does not take the settings."""
    try:
        return Producer(dict(settings), logger=logger)
    except (KafkaException, ValueError, TypeError) as error:
        # Without the error itself, which may quote a secret.
        text = error_of(error).str() if isinstance(error, KafkaException) else str(error)
        raise ConfigError(shown(f"the settings of Kafka are wrong: {text}")) from None
