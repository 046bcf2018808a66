"""What a topic holds, and what of it a reader takes who keeps versions."""

from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from holdfast.kafka import Record
from holdfast.kafka.record_decoder import record_of

READ_SECONDS = 30.0


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """All records of a topic, each partition's in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "holdfast-look",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        partitions = list(
            consumer.list_topics(topic, timeout=READ_SECONDS).topics[topic].partitions
        )
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions])
        found: dict[int, list[Record]] = {n: [] for n in partitions}
        ends = 0
        while ends < len(partitions):
            message = consumer.poll(READ_SECONDS)
            assert message is not None, f"{topic} can't be read"
            if (error := message.error()) is None:
                record = record_of(message)
                found[record.partition].append(record)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
        return [record for n in partitions for record in found[n]]
    finally:
        consumer.close()


def versions(records: Iterable[Record]) -> dict[str, list[int]]:
    """The versions of each stream, as they lie in the topic."""
    found: dict[str, list[int]] = {}
    for record in records:
        key, version = record.key, record.header("holdfast-version")
        assert key is not None
        assert version is not None
        found.setdefault(key.decode(), []).append(int(version))
    return found


def taken(versions: Iterable[int]) -> list[int]:
    """What is left without those that are not greater than the last."""
    found = [0]
    for version in versions:
        if version > found[-1]:
            found.append(version)
    return found[1:]
