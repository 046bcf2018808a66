"""Projections from Kafka, and how events lie in records; the journal published to Kafka."""

from importlib.util import find_spec

from holdfast.core.errors import ConfigError
from holdfast.core.intake import Undecodable, VersionGap

if find_spec("confluent_kafka") is None:
    raise ConfigError("Kafka needs confluent-kafka: pip install 'holdfast[kafka]'")

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
