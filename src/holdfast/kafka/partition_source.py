"""PartitionSource: one partition as a feed.

The event at offset n has position n + 1. So a checkpoint is the number that Kafka itself commits:
the next offset to read. The source reads with its own consumer, outside of any group, and begins
exactly at the checkpoint. The group and the lease have decided before that this process may read.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.brokers import NO_ID, QUERY_SECONDS
from holdfast.kafka.errors import OUT_OF_RANGE, UNKNOWN_PARTITION, error_of, failure
from holdfast.kafka.partition import Partition
from holdfast.kafka.subscription import Subscription
from holdfast.model.event import ForeignEvent
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Chunk

FILL_SECONDS = 0.1
"""Timeout of a read for the next record, while the partition has more."""

STOP_SECONDS = 0.25
"""Interval at which a wait checks whether to stop."""

FETCH_RECORDS = 200
"""Maximum of records per call to the client. A message of the client has seven objects that the
garbage collector tracks; so few are freed before it looks at them."""

MAX_KEPT_EVENTS = 10_000
"""Maximum of events that are kept behind the current read, for reading them again."""

_position = attrgetter("position")


class PartitionSource:
    """Reads one partition for one runner, on the runner's thread.

    Events are kept until they are committed, so that a batch that failed can be read again.
    """

    def __init__(
        self, subscription: Subscription, partition: Partition, *, stopping: Callable[[], bool]
    ) -> None:
        self.partition, self._feed = partition, partition.feed
        self._subscription, self._stopping = subscription, stopping
        self._consumer: Consumer | None = None
        self._session: Session | None = None
        self._events: list[ForeignEvent] = []
        self._kept_after = self._through = self._given = self._committed = 0
        self._is_assigned = self._is_at_end = False
        self._projection, self._topic_id, self._checked_through = "", NO_ID, 0
        self._pending_error: Exception | None = None
        """The error that came behind the events that are kept."""
        self.fault: HoldfastError | None = None
        """Why reading must end; set from another thread."""

    def on(self, session: Session) -> PartitionSource:
        """This source, for a runner with a new session."""
        self._session = session
        return self

    def read(self, after: int, limit: int) -> Chunk:
        if not (self._is_assigned and self._kept_after <= after <= self._through):
            self._assign(after)
        start = bisect_right(self._events, after, key=_position)
        while len(self._events) - start < limit and not self._stopping():
            if self._pending_error is not None:
                if len(self._events) > start:
                    break  # The events before the error come first.
                # Assign again next time: the client has passed the record that failed.
                error, self._pending_error, self._is_assigned = self._pending_error, None, False
                raise error
            wait = 0.0 if self._is_at_end else FILL_SECONDS
            if not self._fetch(limit - (len(self._events) - start), wait):
                break
        events = self._events[start : start + limit]
        if events:
            self._given = events[-1].position
        if start > MAX_KEPT_EVENTS:
            self._drop(self._events[start - MAX_KEPT_EVENTS - 1].position)
        if len(events) == limit:
            return Chunk(events)
        return Chunk(events, held=not self._is_at_end, through=self._through)

    def committed(self, position: int) -> None:
        """Events up to this position will not be read again."""
        self._committed = position
        self._drop(position)

    def _drop(self, position: int) -> None:
        """Drops events up to this position; a read before it asks the broker again."""
        del self._events[: bisect_right(self._events, position, key=_position)]
        self._kept_after = max(self._kept_after, position)

    def head(self) -> int:
        return self._watermarks()[1]

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        """Raises HoldfastError if the topic no longer has the records after the checkpoint."""
        assert self._session is not None
        versions = self._session.foreign_versions
        low, high = self._watermarks()
        origin = self._subscription.brokers.topic_id(self.partition.topic)
        if self._subscription.start != "earliest":
            # All partitions at once: one that is added later is read from its beginning.
            versions.begin_feeds(checkpoint.projection, self._subscription.starts())
            checkpoint = self._session.open_checkpoint(checkpoint.projection, checkpoint.feed)
        known, checkpoint = versions.begin_feed(checkpoint, origin, low)
        self._projection = checkpoint.projection
        self._topic_id = NO_ID if origin == NO_ID else known
        position = checkpoint.position
        if self.is_other(origin):
            raise self._recreated(position)
        if position < low:
            raise HoldfastError(
                f"the projection is at offset {position} of {self._feed}, which begins at {low}: "
                f"{low - position:,} records were deleted (retention) before they were applied. "
                f"To go on without them: holdfast forward {checkpoint.projection} --feed "
                f"'{self._feed}' --to {low}; to begin again with what the topic has: holdfast "
                f"reset {checkpoint.projection}"
            )
        if position > high:
            raise HoldfastError(
                f"the projection is at offset {position} of {self._feed}, which ends at {high}: "
                "the topic was truncated, or is another one. Records before that offset would be "
                f"passed over; holdfast reset {checkpoint.projection} begins again"
            )
        return checkpoint

    def has_confirmed(self, checkpoint: Checkpoint) -> bool:  # noqa: ARG002
        return False

    def verify(self) -> None:
        """Raises HoldfastError if the topic was deleted and made again meanwhile.

        The client does not report that: it goes on in the new topic at the same offset. If the
        topic is still the same one after a fetch, the fetched records are its own.
        """
        if self._through > self._checked_through and self._topic_id != NO_ID:
            if self.is_other(self._subscription.brokers.topic_id_now(self.partition.topic)):
                raise self._recreated(self._committed)
            self._checked_through = self._through

    def forget(self) -> None:
        """Does nothing: records never change."""

    def has_news(self) -> bool:
        return self._has_more or self._fetch(1, 0)

    def wait(self, timeout_seconds: float) -> bool:
        if self._has_more:
            # The runner has events that it does not read yet, so it gets no more.
            time.sleep(min(timeout_seconds, STOP_SECONDS))
            return True
        left = timeout_seconds
        while left > 0 and not self._stopping():
            if self._fetch(1, min(left, STOP_SECONDS)):
                return True
            left -= STOP_SECONDS
        return False

    @property
    def _has_more(self) -> bool:
        """Whether there are events that the runner has not read."""
        return bool(self._events) and self._events[-1].position > self._given

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer, self._is_assigned = None, False

    def is_other(self, topic_id: str) -> bool:
        """Whether an id is that of another topic with the same name."""
        return topic_id != self._topic_id and NO_ID not in (topic_id, self._topic_id)

    @property
    def is_at_end(self) -> bool:
        """Whether the last fetch came to the end of the partition."""
        return self._is_at_end

    def _client(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._subscription.clients.reader()
        return self._consumer

    def _assign(self, after: int) -> None:
        consumer = self._client()
        self._events.clear()
        self._kept_after = self._through = self._given = self._checked_through = after
        self._is_at_end, self._pending_error = False, None
        try:
            consumer.assign([TopicPartition(*self.partition, after)])
        except KafkaException as error:
            raise failure(error_of(error), f"{self._feed} can't be read") from error
        self._is_assigned = True

    def _fetch(self, count: int, timeout_seconds: float) -> bool:
        """Fetches records; returns whether there was anything."""
        if self.fault is not None:
            raise self.fault
        if self._pending_error is not None:
            return True
        consumer = self._client()
        # One record first: a wait for many would delay it.
        messages = consumer.consume(1, timeout_seconds)
        if messages and count > 1:
            messages += consumer.consume(min(count, FETCH_RECORDS) - 1, 0)
        before = self._through
        try:
            self._add(messages)
        except Exception as error:
            self._pending_error = error
            return True
        return self._through > before

    def _add(self, messages: Sequence[Message]) -> None:
        event_in, (topic, number) = self._subscription.decoder.event_in, self.partition
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(error, message)
                continue
            position = message.offset() + 1  # type: ignore[operator]
            if position <= self._through:
                continue
            event = event_in(message, topic, number)
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
                f"{high}. The records were deleted, or the topic is another one; nothing is "
                "passed over silently"
            )
        elif code in UNKNOWN_PARTITION and self._is_gone():
            raise HoldfastError(
                f"{self._feed} is gone; it was read up to offset {self._through}. If the topic is "
                "made again, it is another one: reset the projection then"
            )
        else:
            raise failure(error, f"{self._feed} can't be read at offset {self._through}")

    def _is_gone(self) -> bool:
        return not self._subscription.brokers.exists(self.partition)

    def _watermarks(self) -> tuple[int, int]:
        asked = TopicPartition(*self.partition)
        try:
            found = self._client().get_watermark_offsets(asked, timeout=QUERY_SECONDS)
        except KafkaException as error:
            inner = error_of(error)
            if inner.code() in UNKNOWN_PARTITION and self._is_gone():
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
