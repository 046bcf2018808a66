"""Projections from Kafka: `KafkaSource`, and how events lie in records."""

from holdfast.core.intake import Undecodable, VersionGap
from holdfast.kafka.envelopes import Holdfast
from holdfast.kafka.records import Decoded, Record
from holdfast.kafka.source import KafkaSource

__all__ = ["Decoded", "Holdfast", "KafkaSource", "Record", "Undecodable", "VersionGap"]
