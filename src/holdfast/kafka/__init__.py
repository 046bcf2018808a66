"""Projections from Kafka, and how events lie in records; the journal published to Kafka."""

from importlib.util import find_spec

from holdfast.core.errors import ConfigError
from holdfast.core.intake import Undecodable, VersionGap

if find_spec("confluent_kafka") is None:
    raise ConfigError("Kafka needs confluent-kafka: pip install 'holdfast[kafka]'")

from holdfast.kafka.envelopes import CloudEvents, Debezium, Envelope, Holdfast, Json  # noqa: E402
from holdfast.kafka.pipe import RecordRefused  # noqa: E402
from holdfast.kafka.publisher import KafkaPublisher  # noqa: E402
from holdfast.kafka.records import Decoded, Record  # noqa: E402
from holdfast.kafka.source import KafkaSource  # noqa: E402

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
