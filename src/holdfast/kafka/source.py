"""KafkaSource: the topics of Kafka that a projection reads, with all its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.kafka.brokers import QUERY_SECONDS, Brokers
from holdfast.kafka.clients import Clients
from holdfast.kafka.dead_letter_reader import read_dead_letters
from holdfast.kafka.envelopes.envelope import Envelope, of_function
from holdfast.kafka.envelopes.holdfast import Holdfast
from holdfast.kafka.errors import is_secret
from holdfast.kafka.group_worker import KafkaWorker
from holdfast.kafka.partition import Partition, partition_of
from holdfast.kafka.partition_source import PartitionSource
from holdfast.kafka.publish.dead_letters import dead_letter, dead_letters_sink
from holdfast.kafka.record import Decoded, Record
from holdfast.kafka.record_decoder import RecordDecoder
from holdfast.kafka.subscription import Start, Subscription
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.failure import WorkerLost, is_transient
from holdfast.model.foreign_feed import NOTHING, UNDECODABLE, ForeignFeed
from holdfast.model.policy import Park, Policy
from holdfast.model.projection import Projection
from holdfast.model.start import check_target
from holdfast.runtime.run.foreign_source import ForeignDeadLetter
from holdfast.runtime.run.worker import RunnerContext, Worker


class KafkaSource:
    """Topics of Kafka as the source of projections: `@app.projection(source=KafkaSource(…))`.

    `topics` is one name or several; each partition is a feed. `bootstrap` is HOST:PORT, or several
    with commas. The consumer group `GROUP.PROJECTION` only assigns partitions to the processes that
    run the projection; the offsets are in the database, with the rows.

    `decode` is an envelope, or a function from a Record to a Decoded (None: nothing to apply). A
    record that can't be decoded is parked, and nothing of it is lost.

    `contiguous`: the versions of each stream count without a gap, from `first_version` (None: from
    the first version that comes). A version that came before is a duplicate, and changes nothing.
    An event that comes too early waits `gap_seconds` for those before it; then it fails with
    VersionGap. With `restart_seconds`, a stream that was silent for that time, by the times of its
    events, may begin again with `first_version`: that is no duplicate. With `contiguous=False`, for
    producers that count no versions, the ids of the last `window_events` of each partition tell
    duplicates.

    A tombstone, a record without a value, is passed over; with `tombstones`, it is an event of that
    type, outside of the versions. `dead_letters` is a topic to which dead events are copied.
    `start` is where a new projection begins: with the `earliest` record of the topic, after the
    `latest`, or at a time. `settings` are for the client itself (TLS, SASL, limits).
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        bootstrap: str,
        group: str,
        decode: Envelope | Callable[[Record], Decoded | None] | None = None,
        contiguous: bool = True,
        first_version: int | None = 1,
        gap_seconds: float = 5.0,
        restart_seconds: float | None = None,
        window_events: int = 10_000,
        tombstones: str | None = None,
        dead_letters: str | None = None,
        start: Start = "earliest",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.topics = (topics,) if isinstance(topics, str) else tuple(topics)
        self.bootstrap, self.group, self.start = bootstrap, group, start
        self.contiguous, self.first_version = contiguous, first_version
        self.gap_seconds, self.window_events = gap_seconds, window_events
        self.restart_seconds = restart_seconds
        self.tombstones, self.dead_letters = tombstones, dead_letters
        if not isinstance(settings, Mapping | None):
            raise ConfigError("settings maps names of the client's settings to values")
        self.settings = dict(settings or {})
        self.envelope = _envelope_of(decode)
        self._check()
        clients = Clients(bootstrap, group, self.settings)
        clients.check()
        self._subscription = Subscription(
            topics=self.topics,
            group=group,
            start=start,
            clients=clients,
            brokers=Brokers(clients),
            decoder=RecordDecoder(self.envelope, contiguous=contiguous, tombstones=tombstones),
        )

    def __repr__(self) -> str:
        shown = {n: "…" if is_secret(n) else v for n, v in self.settings.items()}
        return (
            f"KafkaSource({list(self.topics)}, bootstrap={self.bootstrap!r}, "
            f"group={self.group!r}, settings={shown})"
        )

    def foreign_feed(self) -> ForeignFeed:
        """How a projection takes the events of this source."""
        unnumbered = {UNDECODABLE, NOTHING, *([self.tombstones] if self.tombstones else [])}
        return ForeignFeed(
            decode=self._subscription.decoder.event_of_kept,
            contiguous=self.contiguous,
            first_version=self.first_version,
            gap_seconds=self.gap_seconds,
            restart_seconds=self.restart_seconds,
            window_events=self.window_events,
            unnumbered=frozenset(unnumbered),
            letter=dead_letter if self.dead_letters else None,
        )

    def sink(self, projection: str) -> tuple[type[Projection], Policy] | None:
        """The sink that writes a projection's dead events to the dead-letter topic."""
        if self.dead_letters is None:
            return None
        policy = Policy.classify(transient=_passes, otherwise=Park())
        sink = dead_letters_sink(self._subscription.clients, self.dead_letters, projection)
        return sink, policy

    def next_event(self, feed: str, after: int) -> RawEvent | None:
        """The first event of a partition after a position."""
        partition = partition_of(feed, self.topics)
        reader = PartitionSource(self._subscription, partition, stopping=lambda: False)
        until = time.monotonic() + QUERY_SECONDS
        try:
            while not (events := reader.read(after, 1).events) and not reader.is_at_end:
                if time.monotonic() >= until:
                    raise StoreUnavailable(f"{feed} can't be read in time")
        finally:
            reader.close()
        return events[0] if events else None

    def letters(self, topic: str) -> Iterator[ForeignDeadLetter]:
        """The dead events in a dead-letter topic."""
        return read_dead_letters(self._subscription, topic)

    @property
    def feed(self) -> str:
        """The name of its first feed."""
        return Partition(self.topics[0], 0).feed

    def heads(self) -> dict[str, int]:
        """The end of each partition, by feed; raises StoreUnavailable if no broker answers soon."""
        ends = self._subscription.brokers.ends_or_fail_fast(self.topics)
        return {partition.feed: end for partition, end in ends.items()}

    def heads_at(self, at: datetime) -> dict[str, int]:
        ends = self._subscription.brokers.ends(self.topics, at)
        return {partition.feed: end for partition, end in ends.items()}

    def worker(self, definition: Definition, context: RunnerContext, *, catches_up: bool) -> Worker:
        """The worker that runs a projection on these topics."""
        return KafkaWorker(definition, context, self._subscription, catches_up=catches_up)

    def _check(self) -> None:
        if not self.topics or not all(isinstance(t, str) and t for t in self.topics):
            raise ConfigError(f"topics is {self.topics!r}; name at least one topic")
        if len(set(self.topics)) != len(self.topics):
            raise ConfigError(f"topics names one twice: {', '.join(self.topics)}")
        for name in ("bootstrap", "group"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be a text")
        if isinstance(self.start, datetime):
            check_target("start", self.start)
        elif self.start not in ("earliest", "latest"):
            raise ConfigError(f"start is {self.start!r}; it is 'earliest' or 'latest', or a time")
        if not isinstance(self.contiguous, bool):
            raise ConfigError(f"contiguous is {self.contiguous!r}; it is True or False")
        first = self.first_version
        if first is not None and (type(first) is not int or first < 0):
            raise ConfigError(f"first_version is {first!r}; it is a number, 0 or more, or None")
        if self.start != "earliest" and self.contiguous and first is not None:
            raise ConfigError(
                f"start={self.start!r} sees streams in the middle: say first_version=None as "
                "well, or contiguous=False"
            )
        for name in ("tombstones", "dead_letters"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ConfigError(f"{name} is {value!r}; it is a name, or None")
        for name in ("gap_seconds", "window_events"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be 0 or more")
        if self.restart_seconds is not None and not self.restart_seconds > 0:
            raise ConfigError(
                f"restart_seconds is {self.restart_seconds!r}; it must be more than 0, or None"
            )
        if self.restart_seconds is not None and not self.contiguous:
            raise ConfigError("restart_seconds is for versions, and contiguous=False ignores them")
        if self.dead_letters in self.topics:
            raise ConfigError(f"dead_letters is {self.dead_letters!r}, which is read as well")
        if self.contiguous and not self.envelope.has_versions:
            raise ConfigError(
                "the source is contiguous, and its envelope has no field for versions; name it "
                "(version=…), or say contiguous=False: then ids tell duplicates"
            )
        if not self.contiguous and not self.envelope.has_ids and self.window_events:
            raise ConfigError(
                "without versions only ids tell duplicates, and the envelope has no field for "
                "ids; name it (id=…), or accept duplicates with window_events=0"
            )


def _passes(error: BaseException) -> bool:
    """Whether to try a dead letter again; WorkerLost too, as a dead letter kills no process."""
    return isinstance(error, WorkerLost) or is_transient(error)


def _envelope_of(decode: Envelope | Callable[[Record], Decoded | None] | None) -> Envelope:
    if decode is None:
        return Holdfast()
    if isinstance(decode, type):
        raise ConfigError(f"decode is the class {decode.__name__}; give an instance of it")
    if hasattr(decode, "stream_of"):
        return cast(Envelope, decode)
    if callable(decode):
        return of_function(decode)
    raise ConfigError(f"decode is {decode!r}; give an envelope, or a function from a Record")
