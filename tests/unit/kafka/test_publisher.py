"""KafkaPublisher: its settings, and what it makes of the errors of a cluster that a test plays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from holdfast import App, Backoff, ConfigError, NewEvent, Park, Policy, Poll, ProjectionFaulted, on
from holdfast.kafka import KafkaPublisher
from holdfast.kafka.publish import gapless_producer
from holdfast.runtime.signals import PollFailed, Signal
from tests.support.kafka_mock import MockCluster
from tests.support.kafka_read import read_topic, versions
from tests.support.postgres import wait_until

PRODUCE = 0
QUICK = Poll(
    failure_backoff=Backoff(delay_seconds=0.01, max_delay_seconds=0.01),
    max_consecutive_failures=None,
)
PARK = Policy(on_error=Park())


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        yield app


@pytest.fixture
def failures(app: App) -> list[str]:
    """What it says when brokers are away."""
    found: list[str] = []

    def listen(signal: Signal) -> None:
        if isinstance(signal, PollFailed):
            found.append(signal.error)

    app.listen(listen)
    return found


def publisher(**attributes: Any) -> type[KafkaPublisher]:
    given = {"topic": "bank", "bootstrap": "127.0.0.1:1", **attributes}
    return type("Publish", (KafkaPublisher,), given)


@pytest.fixture
def publish(app: App) -> Callable[..., str]:
    """Registers a publisher to a new topic of a cluster, whose name it returns."""

    def register(cluster: MockCluster, *, partitions: int = 1, **attributes: Any) -> str:
        topic = cluster.create_topic(partitions=partitions)
        cls = publisher(topic=topic, bootstrap=cluster.bootstrap, **attributes)
        app.projection(poll=QUICK, policy=PARK)(cls)
        return topic

    return register


def append(app: App, count: int) -> None:
    for n in range(count):
        app.journal.append(f"stream-{n % 3}", [NewEvent({"n": n}, type="Added")])


def check_complete(app: App, cluster: MockCluster, topic: str) -> None:
    """All of it is there. In order only after no refusal: this cluster does not look at numbers."""
    expected: dict[str, list[int]] = {}
    for event in app.journal.read_raw():
        expected.setdefault(event.stream, []).append(event.version)
    found = versions(read_topic(cluster.bootstrap, topic))
    assert {stream: sorted(set(seen)) for stream, seen in found.items()} == expected
    assert not app.queue.list()


# What brokers say


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.REQUEST_TIMED_OUT,
    ],
)
def test_what_passes_is_the_clients_affair(
    app: App, mock_kafka: MockCluster, publish: Callable[..., str], failures: list[str], code: int
) -> None:
    topic = publish(mock_kafka)
    append(app, 9)
    mock_kafka.fail(PRODUCE, code, code)
    app.catch_up()
    check_complete(app, mock_kafka, topic)
    assert not failures


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
    ],
)
@pytest.mark.parametrize("passed", [0, 5])
def test_a_producer_that_has_broken_is_replaced(
    app: App, mock_kafka: MockCluster, publish: Callable[..., str], code: int, passed: int
) -> None:
    """Nobody is to blame, though a batch was refused: alone, each event is taken."""
    topic = publish(mock_kafka, settings={"batch.num.messages": 1})
    append(app, 20)
    mock_kafka.fail(PRODUCE, *[0] * passed, code)
    app.catch_up()
    check_complete(app, mock_kafka, topic)


def test_the_one_that_is_refused_alone_is_to_blame(
    app: App, mock_kafka: MockCluster, publish: Callable[..., str]
) -> None:
    topic = publish(mock_kafka, settings={"batch.num.messages": 1})
    append(app, 6)
    mock_kafka.fail(PRODUCE, KafkaError.INVALID_RECORD, 0, 0, KafkaError.INVALID_RECORD)
    app.catch_up()
    ((stream, version, error), *behind) = [
        (item.stream, item.version, item.error_type) for item in app.queue.list()
    ]
    assert (version, error) == (1, "RecordRefused")
    assert behind == [(stream, 2, None)]
    found = versions(read_topic(mock_kafka.bootstrap, topic))
    assert stream not in found
    assert [set(seen) for seen in found.values()] == [{1, 2}] * 2


def test_what_only_a_person_can_mend_stops_it(app: App, publish: Callable[..., str]) -> None:
    with MockCluster() as cluster:
        publish(cluster)
        append(app, 9)
        cluster.fail(PRODUCE, *[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 10)
        with pytest.raises(ProjectionFaulted, match="does not pass by itself"):
            app.catch_up()
    assert not app.queue.list()
    assert [status.position for status in app.status()] == [0]


def test_nothing_is_committed_while_brokers_are_away(
    app: App, publish: Callable[..., str], failures: list[str]
) -> None:
    with MockCluster() as cluster:
        topic = publish(cluster, partitions=2, timeout_seconds=1.0)
        append(app, 9)
        app.catch_up()
        cluster.go_down()
        append(app, 9)
        with app.running():
            wait_until(lambda: len(failures) >= 2, 30, "failures")
            assert [status.position for status in app.status()] == [9]
            cluster.come_up()
            app.wait_for("publish", 18, timeout_seconds=30)
        check_complete(app, cluster, topic)
    assert all(cluster.bootstrap in text for text in failures)


def test_the_client_may_hold_few_records(
    app: App, mock_kafka: MockCluster, publish: Callable[..., str]
) -> None:
    topic = publish(mock_kafka, settings={"queue.buffering.max.messages": 4})
    append(app, 50)
    app.catch_up()
    check_complete(app, mock_kafka, topic)
    assert len(read_topic(mock_kafka.bootstrap, topic)) == 50


def test_a_broker_may_have_forgotten_the_producer(
    app: App,
    mock_kafka: MockCluster,
    publish: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a long time, first records are waited for again."""
    monkeypatch.setattr(gapless_producer, "REFRESH_SECONDS", 0.0)
    topic = publish(mock_kafka, partitions=3)
    append(app, 20)
    app.catch_up()
    check_complete(app, mock_kafka, topic)


# Settings


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"topic": None}, "Publish.topic must name a topic"),
        ({"topic": "über"}, "letters, digits"),
        ({"bootstrap": " "}, "Publish.bootstrap must be HOST:PORT"),
        ({"timeout_seconds": 0}, "more than 0"),
        ({"timeout_seconds": "1"}, "more than 0"),
        ({"settings": ["linger.ms"]}, "Publish.settings must map"),
        ({"settings": {"bootstrap.servers": "x"}}, "say bootstrap = … instead"),
        ({"settings": {"message.timeout.ms": 5}}, "say timeout_seconds = … instead"),
        ({"settings": {"acks": 1}}, "'acks': holdfast sets it itself"),
        ({"settings": {"max.in.flight": 9}}, r"max\.in\.flight"),
        ({"settings": {"partitioner": "random"}}, "loses its order"),
        ({"settings": {"partitioner": "best"}}, "settings of Kafka are wrong.*partitioner"),
        ({"settings": {"linger": 5}}, "settings of Kafka are wrong.*linger"),
        ({"settings": {"ssl.ca.locatoin": "x"}}, "settings of Kafka are wrong.*locatoin"),
        ({"settings": {"batch.size": "many"}}, "settings of Kafka are wrong.*batch.size"),
        ({"lane": lambda self, event: "x"}, "has a lane"),
        ({"other": on("Moved")(lambda self, event, tx: None)}, "name what is to be published"),
    ],
)
def test_a_wrong_setting_is_found_when_it_is_registered(
    app: App, attributes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        app.projection(publisher(**attributes))


def test_wrong_events_are_found_when_the_class_is_made() -> None:
    with pytest.raises(ConfigError, match="events is empty"):
        publisher(events=())
    with pytest.raises(ConfigError, match="event classes or type names"):
        publisher(events=(5,))


def test_files_need_not_be_where_nothing_is_published(app: App) -> None:
    settings = {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}
    app.projection(publisher(settings=settings))
    append(app, 1)
    with pytest.raises(ProjectionFaulted, match=r"settings of Kafka are wrong.*ca\.location"):
        app.catch_up()


def test_what_a_class_says_holds_for_those_derived_from_it(app: App) -> None:
    base = publisher(settings={"linger.ms": 1})
    derived = type("Derived", (base,), {"topic": "other", "events": "Moved"})
    app.projection(derived)
    (definition,) = app._catalog
    assert (definition.name, list(definition.handlers)) == ("derived", ["Moved"])


def test_secrets_are_nowhere(
    app: App,
    mock_kafka: MockCluster,
    publish: Callable[..., str],
    failures: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = {"sasl.password": "hush", "sasl.username": "hushhush"}
    with pytest.raises(ConfigError) as refused:
        publisher(settings={**secret, "linger.ms": "hush"})()
    assert "hush" not in str(refused.value)
    assert refused.value.__cause__ is None
    sasl = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    publish(mock_kafka, timeout_seconds=1.0, settings={**secret, **sasl})
    append(app, 3)
    with app.running():
        wait_until(lambda: len(failures) >= 2, 30, "failures")
    (definition,) = app._catalog
    assert "hush" not in repr(definition)
    assert "hush" not in "".join(failures)
    assert "hush" not in caplog.text
    assert failures[0]
