"""The journal published to a real Kafka broker, and read from there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from holdfast import (
    App,
    Backoff,
    Event,
    NewEvent,
    Park,
    Policy,
    Poll,
    ProjectionFaulted,
    QueueSelection,
    TableProjection,
    on,
)
from holdfast.kafka import KafkaPublisher, KafkaSource
from holdfast.runtime.signals import PollFailed, Signal
from tests.conftest import MakeTopic
from tests.integration.test_forks import Child
from tests.support.kafka import create_topic, delete_topic
from tests.support.kafka_read import read_topic, taken, versions
from tests.support.postgres import Databases, wait_until
from tests.support.sql import execute

STREAMS = 7
PARK = Policy(on_error=Park())


@dataclass
class Moved:
    amount: int
    note: str = ""


@dataclass
class Total:
    account: str
    amount: int = 0
    events: int = 0
    chain: int = 0


class Totals(TableProjection[Total]):
    """Sums in which a lost, doubled or swapped event shows."""

    @on(Moved)
    def moved(self, row: Total, event: Event[Moved]) -> None:
        row.amount += event.data.amount
        row.events += 1
        row.chain = (row.chain * 31 + event.data.amount) % (2**61 - 1)


ROWS = "SELECT account, amount, events, chain FROM totals ORDER BY account"


@pytest.fixture
def open_app() -> Iterator[Callable[..., App]]:
    with ExitStack() as opened:
        yield lambda url, **settings: opened.enter_context(App(url, **settings))


@pytest.fixture
def app(open_app: Callable[..., App]) -> App:
    return open_app("sqlite:///:memory:")


@pytest.fixture
def other_url(store_url: str, tmp_path: Path, postgres_server: Databases) -> Iterator[str]:
    """A second database of the same kind."""
    if store_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path}/other.db"
        return
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


def publisher(broker: str, into: str, **attributes: Any) -> type[KafkaPublisher]:
    return type("Publish", (KafkaPublisher,), {"topic": into, "bootstrap": broker, **attributes})


def append(app: App, amounts: range) -> None:
    for amount in amounts:
        app.journal.append(f"account-{amount % STREAMS}", [Moved(amount)])


def test_journal_to_topic_to_read_model(
    open_app: Callable[..., App],
    store_url: str,
    other_url: str,
    kafka_broker: str,
    kafka_topic: MakeTopic,
) -> None:
    topic = kafka_topic(partitions=3)
    here = open_app(store_url)
    here.projection(Totals)
    here.projection(publisher(kafka_broker, topic))
    append(here, range(500))
    here.catch_up()
    append(here, range(500, 600))
    here.catch_up()

    there = open_app(other_url)
    there.projection(source=KafkaSource(topic, bootstrap=kafka_broker, group=f"of-{topic}"))(Totals)
    there.catch_up()
    assert execute(other_url, ROWS) == execute(store_url, ROWS)
    assert len(execute(other_url, ROWS)) == STREAMS

    here.reset("publish")  # All of it again: nothing happens to those who keep versions.
    here.catch_up()
    there.catch_up()
    assert len(read_topic(kafka_broker, topic)) == 1200
    assert execute(other_url, ROWS) == execute(store_url, ROWS)


def test_a_record_is_the_event_as_it_is_stored(
    app: App, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic()
    app.projection(publisher(kafka_broker, topic))
    app.journal.append("konto-ä", [Moved(5, "é"), NewEvent({"b": [1], "a": None}, type="Other")])
    app.journal.append("konto-ä", [Moved(6)], metadata={"by": "Zoë"})
    app.catch_up()
    events = list(app.journal.read_raw())
    for event, record in zip(events, read_topic(kafka_broker, topic), strict=True):
        assert (record.key, record.value) == (event.stream.encode(), event.data.encode())
        headers = {
            "holdfast-type": event.type,
            "holdfast-version": str(event.version),
            "holdfast-id": str(event.id),
            "holdfast-recorded-at": event.recorded_at.isoformat(),
        }
        if event.metadata != "{}":
            headers["holdfast-metadata"] = event.metadata
        assert record.headers == tuple((name, value.encode()) for name, value in headers.items())
    assert events[-1].metadata != "{}"


def test_only_the_events_that_it_names(app: App, kafka_broker: str, kafka_topic: MakeTopic) -> None:
    topic = kafka_topic()
    app.projection(publisher(kafka_broker, topic, events=(Moved, "Closed")))
    for type_name in ("Opened", "Moved", "Other", "Closed"):
        app.journal.append("account", [NewEvent({"amount": 1}, type=type_name)])
    app.catch_up()
    found = [record.header("holdfast-type") for record in read_topic(kafka_broker, topic)]
    assert found == [b"Moved", b"Closed"]
    assert [status.position for status in app.status()] == [4]


def test_streams_are_where_clients_of_java_look_for_them(
    app: App, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic(partitions=5)
    app.projection(publisher(kafka_broker, topic))
    for n in range(50):
        app.journal.append(f"stream-{n}" + "x" * (n % 4), [Moved(n)])
    app.catch_up()
    for record in read_topic(kafka_broker, topic):
        assert record.key is not None
        assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 5
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF  # From the tests of Kafka itself.


def test_a_large_event_fits(
    open_app: Callable[..., App], kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    """Whatever a journal takes by default, a topic takes by default."""
    app = open_app("sqlite:///:memory:")
    topic = kafka_topic()
    app.projection(publisher(kafka_broker, topic))
    note = "x" * (1_000_000 - len('{"amount":1,"note":""}{"by":"me"}'))
    app.journal.append("s" * 512, [Moved(1, note)] * 3, metadata={"by": "me"})
    app.catch_up()
    (value, *others) = [record.value for record in read_topic(kafka_broker, topic)]
    assert value is not None
    assert len(value) == 1_000_000 - len('{"by":"me"}')
    assert others == [value, value]


def test_an_event_that_the_client_refuses_waits_for_a_person(
    open_app: Callable[..., App], store_url: str, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    app = open_app(store_url, max_payload_bytes=3_000_000)
    topic = kafka_topic(max_message_bytes="3000000")
    app.projection(policy=PARK)(publisher(kafka_broker, topic))
    append(app, range(20))
    app.journal.append("account-3", [Moved(-1, "x" * 2_000_000)])
    append(app, range(20, 40))
    app.catch_up()
    check_parked(app, kafka_broker, topic, parked_version=4)

    larger = open_app(store_url, max_payload_bytes=3_000_000)
    settings = {"message.max.bytes": 3_000_000}
    larger.projection(policy=PARK)(publisher(kafka_broker, topic, settings=settings))
    check_mended(larger, kafka_broker, topic)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_event_that_the_broker_refuses_waits_for_a_person(
    open_app: Callable[..., App],
    store_url: str,
    kafka_broker: str,
    kafka_topic: MakeTopic,
    is_first: bool,
) -> None:
    """Nothing of its stream overtakes it, though others were sent together with it."""
    app = open_app(store_url)
    topic = kafka_topic(partitions=2, max_message_bytes="5000")
    # Each record in a request of its own, with others on the way behind it.
    settings = {"linger.ms": 0, "batch.num.messages": 1}
    app.projection(policy=PARK)(publisher(kafka_broker, topic, settings=settings))
    before, after = (range(0), range(40)) if is_first else (range(20), range(20, 40))
    append(app, before)
    app.journal.append("account-3", [Moved(-1, "x" * 10_000)])
    append(app, after)
    app.catch_up()
    check_parked(app, kafka_broker, topic, parked_version=1 if is_first else 4)
    set_max_message_bytes(kafka_broker, topic, 20_000)
    check_mended(app, kafka_broker, topic)


def check_parked(app: App, broker: str, topic: str, *, parked_version: int) -> None:
    items = [(i.stream, i.version, i.status, i.error_type) for i in app.queue.list()]
    assert items[0] == ("account-3", parked_version, "dead", "RecordRefused")
    assert {(stream, status) for stream, _, status, _ in items[1:]} == {("account-3", "pending")}
    (status,) = app.status()
    assert (status.closed_lanes, status.lag_events, status.queued_events) == (1, 0, len(items))
    found = {stream: taken(seen) for stream, seen in versions(read_topic(broker, topic)).items()}
    for stream, seen in found.items():
        assert seen == list(range(1, parked_version if stream == "account-3" else len(seen) + 1))
    others = sum(len(seen) for stream, seen in found.items() if stream != "account-3")
    assert others == sum(event.stream != "account-3" for event in app.journal.read_raw())


def check_mended(app: App, broker: str, topic: str) -> None:
    append(app, range(40, 60))
    app.queue.requeue(QueueSelection(status="dead"), by="me")
    app.catch_up()
    assert not app.queue.list()
    check_complete(app, broker, topic)


def check_complete(app: App, broker: str, topic: str) -> None:
    """Who keeps versions sees each stream from 1 to its end, in order."""
    expected: dict[str, list[int]] = {}
    for event in app.journal.read_raw():
        expected.setdefault(event.stream, []).append(event.version)
    found = versions(read_topic(broker, topic))
    assert {stream: taken(seen) for stream, seen in found.items()} == expected


def test_without_a_policy_a_refusal_stops_it(
    app: App, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic(max_message_bytes="5000")
    app.projection(publisher(kafka_broker, topic))
    app.journal.append("account", [Moved(1), Moved(2, "x" * 10_000), Moved(3)])
    with pytest.raises(ProjectionFaulted, match=r"max\.message\.bytes"):
        app.catch_up()
    assert [status.position for status in app.status()] == [1]


def test_a_topic_that_takes_little_at_once_gets_little_at_once(
    app: App, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    """Each event would fit, and all together don't: nobody is to blame."""
    topic = kafka_topic(max_message_bytes="2000")
    app.projection(policy=PARK)(publisher(kafka_broker, topic, settings={"batch.size": 4000}))
    app.journal.append("account", [Moved(n, "x" * 500) for n in range(300)])
    app.catch_up()
    assert not app.queue.list()
    check_complete(app, kafka_broker, topic)
    before = len(read_topic(kafka_broker, topic))
    app.journal.append("account", [Moved(n, "x" * 500) for n in range(300)])
    app.catch_up()
    check_complete(app, kafka_broker, topic)
    assert len(read_topic(kafka_broker, topic)) == before + 300  # It has learnt what fits.


def test_a_topic_may_be_made_later(
    app: App, kafka_broker: str, request: pytest.FixtureRequest
) -> None:
    topic = f"holdfast-test-{uuid4().hex}"
    failures: list[str] = []

    def listen(signal: Signal) -> None:
        if isinstance(signal, PollFailed):
            failures.append(signal.error)

    app.listen(listen)
    app.projection(poll=Poll(failure_backoff=Backoff(delay_seconds=0.05)))(
        publisher(kafka_broker, topic)
    )
    append(app, range(10))
    with app.running():
        wait_until(lambda: bool(failures), 30, "a failure")
        create_topic(kafka_broker, topic)
        request.addfinalizer(lambda: delete_topic(kafka_broker, topic))
        app.wait_for("publish", app.journal.head(), timeout_seconds=30)
    assert f"topic {topic!r} is not at {kafka_broker}" in failures[0]
    check_complete(app, kafka_broker, topic)


def test_it_can_be_rewound(app: App, kafka_broker: str, kafka_topic: MakeTopic) -> None:
    topic = kafka_topic()
    app.projection(publisher(kafka_broker, topic))
    app.journal.append("account", [Moved(n) for n in range(5)])
    app.catch_up()
    app.rewind("publish", to=3, by="me")
    app.catch_up()
    assert versions(read_topic(kafka_broker, topic)) == {"account": [1, 2, 3, 4, 5, 4, 5]}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_producer_of_its_own(
    open_app: Callable[..., App], sqlite_url: str, kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic()
    app = open_app(sqlite_url)
    app.projection(publisher(kafka_broker, topic))
    append(app, range(10))
    app.catch_up()

    def work() -> None:
        append(app, range(10, 20))
        app.catch_up()

    child = Child(work)
    assert child.await_end() == 0
    assert os.getpid() != child.pid
    append(app, range(20, 30))
    app.catch_up()
    check_complete(app, kafka_broker, topic)
    assert len(read_topic(kafka_broker, topic)) == 30


def test_a_topic_to_a_topic(app: App, kafka_broker: str, kafka_topic: MakeTopic) -> None:
    """What comes from another topic can be published too, by a thread for each partition."""
    first, second = kafka_topic(partitions=3), kafka_topic(partitions=2)
    app.projection(publisher(kafka_broker, first))
    source = KafkaSource(first, bootstrap=kafka_broker, group=f"of-{first}")
    app.projection(source=source, name="pass_on")(publisher(kafka_broker, second))
    append(app, range(100))
    app.catch_up()
    app.catch_up()
    check_complete(app, kafka_broker, second)


def set_max_message_bytes(broker: str, topic: str, size: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def murmur2(data: bytes) -> int:
    """The hash by which Java's clients choose a partition."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
