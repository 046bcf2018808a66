"""Brokers: answers which partitions a topic has, where they end, and which topic it is."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from datetime import datetime
from threading import Lock
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec as OffsetSpec  # type: ignore[attr-defined]

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.clients import Clients
from holdfast.kafka.errors import UNKNOWN_PARTITION, error_of, failure
from holdfast.kafka.partition import Partition

NOT_SUPPORTED = (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE)

NO_ID = "-"
"""Stands for the id of a topic whose brokers have no topic ids."""

QUERY_SECONDS = 10.0
"""Timeout of a question to the brokers."""

HEAD_SECONDS = 2.0
"""Timeout of a question for the ends of partitions, which only measures the lag."""

AWAY_SECONDS = 10.0
"""Interval after a failure in which `ends_or_fail_fast` does not ask again."""


class Brokers:
    """The brokers of one source. Every method raises StoreUnavailable if they don't answer."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._away_until = 0.0
        self._asking: dict[int, Lock] = {}
        self._topic_ids: dict[str, tuple[float, str]] = {}

    def partitions(self, topic: str, timeout_seconds: float = QUERY_SECONDS) -> list[int]:
        """The numbers of a topic's partitions; raises HoldfastError if the topic is missing."""
        metadata = self._metadata(topic, timeout_seconds).topics[topic]
        if metadata.error is not None or not metadata.partitions:
            why = "" if metadata.error is None else f" ({metadata.error.str()})"
            where = self._clients.bootstrap
            raise HoldfastError(
                f"topic {topic!r} is not at {where}{why}; make it, then start again"
            )
        return sorted(metadata.partitions)

    def exists(self, partition: Partition) -> bool:
        """Whether the topic has this partition."""
        topic, number = partition
        metadata = self._metadata(topic).topics[topic]
        if metadata.error is not None and metadata.error.code() not in UNKNOWN_PARTITION:
            raise failure(metadata.error, f"the brokers can't say whether topic {topic!r} exists")
        return metadata.error is None and number in metadata.partitions

    def ends(self, topics: Sequence[str], at: datetime | None = None) -> dict[Partition, int]:
        """The next offset of each partition of these topics, now or at a time."""
        known = [(t, n) for t in topics for n in self.partitions(t, HEAD_SECONDS)]
        found = self._offsets(known, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        if at is not None:
            milliseconds = math.floor(at.timestamp() * 1000)
            # Where no record is that late, there is no offset.
            since = self._offsets(known, OffsetSpec.for_timestamp(milliseconds))
            found |= {partition: offset for partition, offset in since.items() if offset >= 0}
        return found

    def _offsets(self, known: Sequence[tuple[str, int]], which: OffsetSpec) -> dict[Partition, int]:
        asked = {TopicPartition(*partition): which for partition in known}
        futures = self._clients.admin().list_offsets(asked, request_timeout=HEAD_SECONDS)
        try:
            return {
                Partition(found.topic, found.partition): future.result(HEAD_SECONDS).offset
                for found, future in futures.items()
            }
        except KafkaException as error:
            raise failure(error_of(error), "the ends of topics can't be had") from error
        except TimeoutError as error:
            raise StoreUnavailable("the ends of topics can't be had in time") from error

    def ends_or_fail_fast(self, topics: Sequence[str]) -> dict[Partition, int]:
        """The same, but for a while after a failure it fails at once."""
        if time.monotonic() < self._away_until:
            where = self._clients.bootstrap
            raise StoreUnavailable(f"the brokers at {where} did not answer just now")
        try:
            return self.ends(topics)
        except StoreUnavailable:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise

    def topic_id(self, topic: str) -> str:
        """The id that tells a topic from another of the same name; NO_ID if brokers have none."""
        cluster = self._metadata(topic)
        if cluster.controller_id not in cluster.brokers:
            return NO_ID  # There is no controller that could answer.
        return self._topic_id(topic)

    def topic_id_now(self, topic: str) -> str:
        """The id as of now, from brokers that have ids. Concurrent callers share one answer.

        The answer is never older than the call.
        """
        asked = time.monotonic()
        with self._asking.setdefault(os.getpid(), Lock()):
            answered = self._topic_ids.get(topic)
            if answered is None or answered[0] < asked:
                answered = self._topic_ids[topic] = time.monotonic(), self._topic_id(topic)
            return answered[1]

    def _topic_id(self, topic: str) -> str:
        try:
            futures = self._clients.admin().describe_topics(
                TopicCollection([topic]), request_timeout=QUERY_SECONDS
            )
            found = futures[topic].result(QUERY_SECONDS + 1).topic_id
        except KafkaException as error:
            inner = error_of(error)
            if inner.code() in NOT_SUPPORTED:
                return NO_ID
            raise failure(inner, f"topic {topic!r} can't be described") from error
        except TimeoutError as error:
            raise StoreUnavailable(f"topic {topic!r} can't be described in time") from error
        return NO_ID if found is None else str(found)

    def _metadata(self, topic: str, timeout_seconds: float = QUERY_SECONDS) -> Any:
        try:
            return self._clients.admin().list_topics(topic, timeout=timeout_seconds)
        except KafkaException as error:
            where = self._clients.bootstrap
            raise failure(error_of(error), f"the brokers at {where} can't be asked") from error
