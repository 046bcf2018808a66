"""One partition as a feed: its offsets are positions, and its own consumer reads it.

Position n is what comes after offset n - 1, so that a checkpoint is the number that Kafka itself
commits: the next offset to read. A consumer of its own, outside of any group, begins exactly where
the checkpoint says; who may do so is settled before, by group and lease.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.brokers import NO_ID
from holdfast.kafka.errors import OUT_OF_RANGE, UNKNOWN_PARTITION, error_of, failure
from holdfast.kafka.partition import Partition
from holdfast.kafka.subscription import Subscription
from holdfast.model.event import ForeignEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Chunk

QUERY_SECONDS = 10.0
"""How long a broker may take to answer."""

FILL_SECONDS = 0.1
"""How long a read waits for the next records while more are there."""

STOP_SECONDS = 0.25
"""How often a wait looks whether it should end."""

TAKEN_AT_ONCE = 200
"""Records per call to the client. A record has seven objects that the garbage collector looks at
while it is the client's: few at a time are gone before it does."""

KEPT_EVENTS = 10_000
"""What was read is kept until it is committed, so that it can be read again; but no more of it."""

_position = attrgetter("position")


class PartitionSource:
    """Reads one partition for one runner, on the runner's thread.

    What was read is kept until it is committed, so that a batch that failed can be read again.
    """

    def __init__(
        self, subscription: Subscription, partition: Partition, *, stopping: Callable[[], bool]
    ) -> None:
        self.partition, self._feed = partition, partition.feed
        self._subscription, self._stopping = subscription, stopping
        self._consumer: Consumer | None = None
        self._session: Session | None = None
        self._events: list[ForeignEvent] = []
        self._from = self._through = self._read = self._committed = 0
        self._is_assigned = self._is_at_end = False
        self._projection, self._origin, self._checked = "", NO_ID, 0
        self._failed: Exception | None = None
        """What came behind all that was taken."""
        self.fault: HoldfastError | None = None
        """Set from another thread: why nothing more may be read."""

    def on(self, session: Session) -> PartitionSource:
        """This, for a runner that has a new session."""
        self._session = session
        return self

    def read(self, after: int, limit: int) -> Chunk:
        if not (self._is_assigned and self._from <= after <= self._through):
            self._assign(after)
        start = bisect_right(self._events, after, key=_position)
        while len(self._events) - start < limit and not self._stopping():
            if self._failed is not None:
                if len(self._events) > start:
                    break  # What came before it comes first.
                # The client will not give again what comes behind it.
                failed, self._failed, self._is_assigned = self._failed, None, False
                raise failed
            wait = 0.0 if self._is_at_end else FILL_SECONDS
            if not self._take(limit - (len(self._events) - start), wait):
                break
        events = self._events[start : start + limit]
        if events:
            self._read = events[-1].position
        if start > KEPT_EVENTS:
            self._drop(self._events[start - KEPT_EVENTS - 1].position)
        if len(events) == limit:
            return Chunk(events)
        return Chunk(events, held=not self._is_at_end, through=self._through)

    def committed(self, position: int) -> None:
        """What is up to this position will not be read again."""
        self._committed = position
        self._drop(position)

    def _drop(self, position: int) -> None:
        """What is up to this position comes from the broker if it is read again."""
        del self._events[: bisect_right(self._events, position, key=_position)]
        self._from = max(self._from, position)

    def head(self) -> int:
        return self._watermarks()[1]

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        """Raises HoldfastError if the topic no longer has what comes after the checkpoint."""
        assert self._session is not None
        low, high = self._watermarks()
        origin = self._subscription.brokers.topic_id(self.partition.topic)
        if self._subscription.start == "latest":
            # All at once, so that a partition that is added later is read from its beginning.
            self._session.begin_feeds(checkpoint.projection, self._subscription.ends())
            checkpoint = self._session.open_checkpoint(checkpoint.projection, checkpoint.feed)
        known, checkpoint = self._session.begin_feed(checkpoint, origin, low)
        self._projection = checkpoint.projection
        self._origin = NO_ID if origin == NO_ID else known
        position = checkpoint.position
        if self.is_other(origin):
            raise self._recreated(position)
        if position < low:
            raise HoldfastError(
                f"it comes to offset {position} of {self._feed}, which begins at {low}: the "
                f"{low - position:,} before it were deleted (retention) before they were applied. "
                f"To go on without them: holdfast forward {checkpoint.projection} --feed "
                f"'{self._feed}' --to {low}; to begin again with what the topic has: holdfast "
                f"reset {checkpoint.projection}"
            )
        if position > high:
            raise HoldfastError(
                f"it comes to offset {position} of {self._feed}, which ends at {high}: it was cut, "
                "or is another one. What comes there would be passed over; holdfast reset "
                f"{checkpoint.projection} begins again"
            )
        return checkpoint

    def assure(self) -> None:
        """What was taken is of the same topic as before, if that is still there afterwards.

        The client does not say when a topic is made again: it reads the new one from where it is.
        """
        if self._through > self._checked and self._origin != NO_ID:
            if self.is_other(self._subscription.brokers.topic_id_now(self.partition.topic)):
                raise self._recreated(self._committed)
            self._checked = self._through

    def forget(self) -> None:
        """Nobody can change a record."""

    def wait(self, timeout_seconds: float) -> bool:
        if self._events and self._events[-1].position > self._read:
            # Somebody waits who does not want to read now: nothing is piled up for him.
            time.sleep(min(timeout_seconds, STOP_SECONDS))
            return True
        left = timeout_seconds
        while left > 0 and not self._stopping():
            if self._take(1, min(left, STOP_SECONDS)):
                return True
            left -= STOP_SECONDS
        return False

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer, self._is_assigned = None, False

    def is_other(self, topic_id: str) -> bool:
        """Whether a topic of this name is not the one that is read here."""
        return topic_id != self._origin and NO_ID not in (topic_id, self._origin)

    @property
    def is_at_end(self) -> bool:
        """Whether the partition has no more for now, as far as that is known."""
        return self._is_at_end

    def _client(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._subscription.clients.reader()
        return self._consumer

    def _assign(self, after: int) -> None:
        consumer = self._client()
        self._events.clear()
        self._from = self._through = self._read = self._checked = after
        self._is_at_end, self._failed = False, None
        try:
            consumer.assign([TopicPartition(*self.partition, after)])
        except KafkaException as error:
            raise failure(error_of(error), f"{self._feed} can't be read") from error
        self._is_assigned = True

    def _take(self, count: int, timeout_seconds: float) -> bool:
        """Takes what has come; returns whether there was anything."""
        if self.fault is not None:
            raise self.fault
        if self._failed is not None:
            return True
        consumer = self._client()
        # One first: to wait for many would delay it.
        messages = consumer.consume(1, timeout_seconds)
        if messages and count > 1:
            messages += consumer.consume(min(count, TAKEN_AT_ONCE) - 1, 0)
        before = self._through
        try:
            self._add(messages)
        except Exception as error:
            self._failed = error
            return True
        return self._through > before

    def _add(self, messages: Sequence[Message]) -> None:
        event_in, partition = self._subscription.decoder.event_in, self.partition
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(error, message)
                continue
            position = message.offset() + 1  # type: ignore[operator]
            if position <= self._through:
                continue
            event = event_in(message, partition)
            if event is not None:
                self._events.append(event)
            self._through = position
            self._is_at_end = False

    def _on_error(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._is_at_end = True
            self._through = max(self._through, message.offset() or 0)
        elif code in OUT_OF_RANGE:
            low, high = self._watermarks()
            raise HoldfastError(
                f"offset {self._through} of {self._feed} can't be read: the broker has {low} to "
                f"{high}. What is missing was deleted, or the topic is another one; nothing is "
                "passed over silently"
            )
        elif code in UNKNOWN_PARTITION and not self._subscription.brokers.exists(self.partition):
            raise HoldfastError(
                f"{self._feed} is gone; it was read up to offset {self._through}. If the topic is "
                "made again, it is another one: reset the projection then"
            )
        else:
            raise failure(error, f"{self._feed} can't be read at offset {self._through}")

    def _watermarks(self) -> tuple[int, int]:
        asked = TopicPartition(*self.partition)
        try:
            found = self._client().get_watermark_offsets(asked, timeout=QUERY_SECONDS)
        except KafkaException as error:
            inner = error_of(error)
            if inner.code() in UNKNOWN_PARTITION and not self._subscription.brokers.exists(
                self.partition
            ):
                raise HoldfastError(
                    f"{self._feed} is not there; make the topic, then start again"
                ) from error
            raise failure(inner, f"the offsets of {self._feed} can't be had") from error
        if found is None:
            raise StoreUnavailable(f"the offsets of {self._feed} can't be had in time")
        low, high = found
        return low, high

    def _recreated(self, position: int) -> HoldfastError:
        return HoldfastError(
            f"topic {self.partition.topic!r} is not the one that was read up to offset {position} "
            f"of partition {self.partition.number}: it was deleted and made again. holdfast reset "
            f"{self._projection} begins again with the new one"
        )
