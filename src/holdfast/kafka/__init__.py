"""Projections from Kafka, and how events lie in records; the journal published to Kafka."""

from holdfast.core.intake import Undecodable, VersionGap
from holdfast.kafka.envelopes import CloudEvents, Debezium, Envelope, Holdfast, Json
from holdfast.kafka.pipe import RecordRefused
from holdfast.kafka.publisher import KafkaPublisher
from holdfast.kafka.records import Decoded, Record
from holdfast.kafka.source import KafkaSource

__all__ = [
    "CloudEvents",
    "Debezium",
    "Decoded",
    "Envelope",
    "Holdfast",
    "Json",
    "KafkaPublisher",
    "KafkaSource",
    "Record",
    "RecordRefused",
    "Undecodable",
    "VersionGap",
]
