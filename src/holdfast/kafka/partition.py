"""Partition: a topic and a number, which name a feed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.errors import ConfigError

_NUMBER = re.compile("0|[1-9][0-9]{0,9}")
"""A partition's number as Kafka writes it; others would be other names of the same feed."""


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    @property
    def feed(self) -> str:
        """The name of its feed, such as `orders[3]`."""
        return f"{self.topic}[{self.number}]"


def partition_of(feed: str, topics: Iterable[str]) -> Partition:
    """The partition that a feed's name means; raises ConfigError if it is none of these topics."""
    for topic in topics:
        number = feed.removeprefix(f"{topic}[").removesuffix("]")
        if feed == f"{topic}[{number}]" and _NUMBER.fullmatch(number):
            return Partition(topic, int(number))
    raise ConfigError(f"{feed!r} is not a partition of {', '.join(topics)}")
