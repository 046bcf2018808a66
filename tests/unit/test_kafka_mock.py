"""The cluster that the client library plays does what the tests ask of it."""

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.kafka_mock import MockCluster

PRODUCE = 0


def test_a_topic_has_the_partitions_asked_for(mock_kafka: MockCluster) -> None:
    topic = mock_kafka.create_topic(partitions=7)
    producer = Producer({"bootstrap.servers": mock_kafka.bootstrap})

    assert len(producer.list_topics(topic, timeout=10).topics[topic].partitions) == 7
    with pytest.raises(ValueError, match=topic):
        mock_kafka.create_topic(topic)


def test_a_group_gets_what_was_produced_and_keeps_its_offset(mock_kafka: MockCluster) -> None:
    topic = mock_kafka.create_topic()
    assert send(mock_kafka, topic) is None
    group = {"group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": mock_kafka.bootstrap, **group})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None
    consumer.commit(message=message, asynchronous=False)
    (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()

    assert message.value() == b"value"
    assert kept.offset == 1


def test_requests_fail_as_asked(mock_kafka: MockCluster) -> None:
    topic = mock_kafka.create_topic()
    mock_kafka.fail(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)

    error = send(mock_kafka, topic)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(mock_kafka, topic) is None


def test_who_is_down_takes_nothing_until_it_comes_up() -> None:
    with MockCluster() as cluster:
        topic = cluster.create_topic()
        cluster.go_down()
        error = send(cluster, topic, timeout_ms=500)
        assert error is not None
        assert error.code() == KafkaError._MSG_TIMED_OUT
        cluster.come_up()
        assert send(cluster, topic) is None
    cluster.close()


def send(cluster: MockCluster, topic: str, *, timeout_ms: int = 30_000) -> KafkaError | None:
    """Send one message; the error with which it failed, if it did."""
    errors: list[KafkaError | None] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    producer = Producer(settings | {"message.timeout.ms": timeout_ms})
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return errors[0]
