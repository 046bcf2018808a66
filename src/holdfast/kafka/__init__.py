"""Projections that read Kafka, and the journal published to Kafka.

source               a projection's topics, with all settings
group_worker         a projection's member of the consumer group
partition_runner     the runner of one partition
group_leases         the right to run on an assigned partition
partition_source     one partition as a feed
dead_letter_reader   dead letters of any consumer, for import
subscription         what the workers and readers of a source share
record_decoder       the way from a record to an event
record               one record of a topic
envelopes            how events are written in records
publish              what holdfast writes: published events, dead letters
brokers              questions to the brokers
clients              the clients, made from settings
partition            a topic and a number
errors               errors of the client as ours
"""

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
