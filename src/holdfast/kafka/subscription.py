"""Subscription: the topics that a source reads, and the means to read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from holdfast.kafka.brokers import Brokers
from holdfast.kafka.clients import Clients
from holdfast.kafka.partition import Partition
from holdfast.kafka.record_decoder import RecordDecoder

Start = Literal["earliest", "latest"] | datetime


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the workers and readers of one source share."""

    topics: tuple[str, ...]
    group: str
    start: Start
    clients: Clients
    brokers: Brokers
    decoder: RecordDecoder

    def partitions(self) -> list[Partition]:
        """All partitions; raises HoldfastError if a topic is missing or no broker answers."""
        return [Partition(t, n) for t in self.topics for n in self.brokers.partitions(t)]

    def starts(self) -> dict[str, tuple[str, int]]:
        """The topic's id and where to begin, by feed: at a time, or at the end."""
        ids = {topic: self.brokers.topic_id(topic) for topic in self.topics}
        at = self.start if isinstance(self.start, datetime) else None
        ends = self.brokers.ends(self.topics, at)
        return {p.feed: (ids[p.topic], end) for p, end in ends.items()}
