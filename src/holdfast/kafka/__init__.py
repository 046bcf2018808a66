"""Projections from Kafka, and how events lie in records; the journal published to Kafka."""

from importlib.util import find_spec

from holdfast.errors import ConfigError
from holdfast.model.foreign_feed import Undecodable, VersionGap

if find_spec("confluent_kafka") is None:
    raise ConfigError("Kafka needs confluent-kafka: pip install 'holdfast[kafka]'")

from holdfast.kafka.envelopes.cloudevents import CloudEvents
from holdfast.kafka.envelopes.debezium import Debezium
from holdfast.kafka.envelopes.envelope import Envelope
from holdfast.kafka.envelopes.holdfast import Holdfast
from holdfast.kafka.envelopes.json import Json
from holdfast.kafka.publish.gapless_producer import RecordRefused
from holdfast.kafka.publish.publisher import KafkaPublisher
from holdfast.kafka.record import Decoded, Record
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
