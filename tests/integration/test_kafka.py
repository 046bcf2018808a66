"""Projections from Kafka, on a real broker: what was here before, what comes too early, poison."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from holdfast import App, Backoff, ConfigError, Park, Policy, Projection, ProjectionFaulted, on
from holdfast.kafka import Decoded, Record
from holdfast.runtime.store.queue_items import QueueSelection
from tests.support.bank_topic import (
    Credited,
    Make,
    Topic,
    balances,
    headers,
    read_topic,
    register,
    rows,
)
from tests.support.postgres import wait_until

NOW = {"gap_seconds": 0.0}
"""What comes too early is an error at once."""


@pytest.fixture
def topic(kafka_broker: str, kafka_topic: Make) -> Topic:
    return Topic(kafka_broker, kafka_topic())


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        yield app


def items(app: App, **selection: Any) -> list[tuple[str, int, str]]:
    """Lane, version and status of what is in the queue."""
    found = app.queue.list(QueueSelection(**selection))
    return sorted((item.lane, item.version, item.status) for item in found)


def test_events_become_rows(app: App, kafka_broker: str, kafka_topic: Make) -> None:
    topic = Topic(kafka_broker, kafka_topic(partitions=3))
    for version in range(1, 11):
        for account in range(20):
            topic.credit(f"account-{account}", version)
    topic.flush()
    register(app, topic.source())
    app.catch_up()
    assert balances(app) == {f"account-{account}": 10 for account in range(20)}
    status = {s.feed: s for s in app.status()}
    assert sorted(status) == [f"{topic.name}[{n}]" for n in range(3)]
    assert sum(s.position for s in status.values()) == 200
    assert {s.lag_events for s in status.values()} == {0}
    assert sum(s.events_processed for s in status.values()) == 200


def test_rows_carry_the_version(app: App, topic: Topic) -> None:
    for version in (1, 2, 3):
        topic.credit("a", version)
    topic.flush()
    register(app, topic.source())
    app.catch_up()
    ((account, amount, _, version),) = rows(app, "balances")
    assert (account, amount, version) == ("a", 3, 3)


def test_what_was_here_before_changes_nothing(app: App, topic: Topic) -> None:
    for version in (1, 2, 1, 2, 3, 3, 2):
        topic.credit("a", version)
    topic.flush()
    register(app, topic.source())
    app.catch_up()
    assert balances(app) == {"a": 3}
    for version in (1, 2, 3):
        topic.credit("a", version)
    topic.flush()
    before = rows(app, "holdfast_stream")
    app.catch_up()
    assert balances(app) == {"a": 3}
    assert rows(app, "holdfast_stream") == before
    (status,) = app.status()
    assert (status.position, status.events_processed) == (10, 3)


def test_what_comes_too_early_waits_for_what_is_before_it(app: App, topic: Topic) -> None:
    for version in (1, 5, 6, 2, 4, 3, 7):
        topic.credit("a", version)
    topic.credit("b", 1)
    topic.flush()
    register(app, topic.source(gap_seconds=600))
    app.catch_up()
    assert balances(app) == {"a": 7, "b": 1}
    assert items(app) == []


def test_a_late_one_opens_the_lane_even_after_it_was_given_up(app: App, topic: Topic) -> None:
    for version in (1, 3, 4):
        topic.credit("a", version)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    app.catch_up()
    assert items(app) == [("a", 3, "dead"), ("a", 4, "pending")]
    topic.credit("a", 2)
    topic.flush()
    app.catch_up()
    assert (balances(app), items(app)) == ({"a": 4}, [])


def test_a_gap_closes_only_its_own_lane(app: App, topic: Topic) -> None:
    for version in (1, 2, 4, 5):
        topic.credit("a", version)
    for version in (1, 2, 3):
        topic.credit("b", version)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    app.catch_up()
    assert balances(app) == {"a": 2, "b": 3}
    assert items(app) == [("a", 4, "dead"), ("a", 5, "pending")]
    (gap,) = app.queue.list(QueueSelection(status="dead"))
    assert gap.error_type == "VersionGap"
    assert "follows version 2" in str(gap.error_message)
    change = app.queue.requeue(QueueSelection(ids=(gap.id,)), by="ann", accept_gap=True)
    assert len(change.items) == 1
    topic.credit("a", 6)
    topic.credit("a", 3)
    topic.flush()
    app.catch_up()
    assert (balances(app), items(app)) == ({"a": 5, "b": 3}, [])


def test_a_gap_is_not_accepted_before_what_waits(app: App, topic: Topic) -> None:
    topic.credit("a", 1, currency="XXX")
    topic.credit("a", 3)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    assert items(app) == [("a", 1, "dead"), ("a", 3, "pending")]
    (first,) = app.queue.list(QueueSelection(status="dead"))
    app.queue.requeue(QueueSelection(ids=(first.id,)), by="ann", accept_gap=True)
    app.catch_up()
    assert items(app) == [("a", 1, "dead"), ("a", 3, "pending")]


def test_a_resolved_event_is_no_gap(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.credit("a", 2, currency="XXX")
    topic.credit("a", 3)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    assert items(app) == [("a", 2, "dead"), ("a", 3, "pending")]
    app.queue.resolve(QueueSelection(status="dead"), by="ann")
    topic.credit("a", 4)
    topic.credit("a", 2)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 3}
    assert items(app) == [("a", 2, "resolved")]


def test_an_event_resolved_behind_others_is_no_gap(app: App, topic: Topic) -> None:
    topic.credit("a", 1, currency="XXX")
    for version in (2, 3, 4):
        topic.credit("a", version, amount=version)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    third = [item for item in app.queue.list() if item.version == 3]
    app.queue.resolve(QueueSelection(ids=(third[0].id,)), by="ann")
    app.queue.resolve(QueueSelection(status="dead"), by="ann")
    app.catch_up()
    assert balances(app) == {"a": 2 + 4}
    assert items(app) == [("a", 1, "resolved"), ("a", 3, "resolved")]


@pytest.mark.parametrize("first_version", [0, 1, 7])
def test_streams_begin_with_the_first_version(app: App, topic: Topic, first_version: int) -> None:
    topic.credit("a", first_version)
    topic.credit("a", first_version + 1)
    topic.credit("b", first_version + 1)
    topic.flush()
    register(app, topic.source(first_version=first_version, **NOW))
    app.catch_up()
    app.catch_up()
    assert balances(app) == {"a": 2}
    assert items(app) == [("b", first_version + 1, "dead")]


def test_streams_may_begin_anywhere(app: App, topic: Topic) -> None:
    for version in (5, 6, 4, 8):
        topic.credit("a", version)
    topic.flush()
    register(app, topic.source(first_version=None, **NOW))
    app.catch_up()
    app.catch_up()
    assert balances(app) == {"a": 2}
    assert items(app) == [("a", 8, "dead")]


def test_events_that_nobody_handles_count(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.put("a", b"{}", headers(2, "Renamed"))
    topic.credit("a", 3)
    topic.credit("a", 4, currency="XXX")
    topic.put("a", b"{}", headers(5, "Renamed"))
    topic.credit("a", 6)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    assert balances(app) == {"a": 2}
    assert items(app) == [("a", 4, "dead"), ("a", 5, "pending"), ("a", 6, "pending")]
    app.queue.resolve(QueueSelection(status="dead"), by="ann")
    app.catch_up()
    assert balances(app) == {"a": 3}


def test_without_versions_ids_tell_what_was_here(app: App, topic: Topic) -> None:
    first, second = headers(None), headers(None)
    for own in (first, second, first, second):
        topic.put("a", b'{"amount": 1}', own)
    topic.flush()
    register(app, topic.source(contiguous=False))
    app.catch_up()
    assert balances(app) == {"a": 2}
    topic.put("a", b'{"amount": 1}', first)
    topic.put("a", b'{"amount": 1}', headers(None))
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 3}


def test_the_window_of_ids_has_an_end(app: App, topic: Topic) -> None:
    first = headers(None)
    topic.put("a", b'{"amount": 1}', first)
    for _ in range(5):
        topic.put("a", b'{"amount": 1}', headers(None))
    topic.flush()
    register(app, topic.source(contiguous=False, window_events=3))
    app.catch_up()
    assert len(rows(app, "holdfast_seen")) == 3
    topic.put("a", b'{"amount": 1}', first)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 7}


def test_undecodable_bytes_are_parked_as_they_came(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.put("a", b"\xff\x00 no JSON", headers(2))
    topic.credit("a", 3)
    topic.put(b"\xff", b"\x00", [("x", b"\xfe")])
    topic.credit("b", 1)
    topic.flush()
    register(app, topic.source())
    app.catch_up()
    assert balances(app) == {"a": 1, "b": 1}
    own = f"(undecodable) {topic.name}[0]@3"
    assert [item[0] for item in items(app)] == [own, "a", "a"]
    found = {item.lane: item for item in app.queue.list(QueueSelection(status="dead"))}
    assert found["a"].error_type == "Undecodable"
    kept = found[own].kept
    assert kept is not None
    record = msgspec.json.decode(kept, type=Record)
    assert (record.key, record.value, record.headers) == (b"\xff", b"\x00", (("x", b"\xfe"),))


def test_what_waits_is_read_again_by_todays_code(
    store_url: str, topic: Topic, kafka_topic: Make
) -> None:
    topic.credit("a", 1)
    topic.put("a", b"amount=5", headers(2))
    topic.credit("a", 3)
    topic.flush()
    with App(store_url) as app:
        register(app, topic.source())
        app.catch_up()
        assert balances(app) == {"a": 1}
        app.queue.requeue(QueueSelection(status="dead"), by="ann")

    def decode(record: Record) -> Decoded:
        assert record.key is not None
        assert record.value is not None
        text = record.value.decode()
        if text.startswith("amount="):
            text = f'{{"amount": {text.removeprefix("amount=")}}}'
        version = (record.header("holdfast-version") or b"").decode()
        return Decoded(stream=record.key.decode(), type="Credited", data=text, version=version)

    with App(store_url) as app:
        register(app, topic.source(decode=decode))
        app.catch_up()
        assert (balances(app), items(app)) == ({"a": 7}, [])


def test_tombstones_are_passed_over(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.put("a", None)
    topic.flush()
    register(app, topic.source())
    app.catch_up()
    assert (balances(app), items(app)) == ({"a": 1}, [])
    (status,) = app.status()
    assert (status.position, status.lag_events) == (2, 0)


def test_tombstones_may_be_events(app: App, topic: Topic) -> None:
    class Deleted(Projection):
        tables: ClassVar = {"deleted": "CREATE TABLE deleted (account text PRIMARY KEY)"}

        @on("Deleted")
        def deleted(self, event: Any, tx: Any) -> None:
            tx.connection.execute(f"INSERT INTO deleted VALUES ('{event.stream}')")

    topic.credit("a", 1)
    topic.put("a", None)
    topic.credit("a", 2)
    topic.flush()
    app.projection(source=topic.source(tombstones="Deleted"))(Deleted)
    app.catch_up()
    assert rows(app, "deleted") == [("a",)]
    assert rows(app, "holdfast_stream")[0][1:3] == ("a", 2)


def test_dead_events_are_in_the_dead_letter_topic(
    store_url: str, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic())
    letters = kafka_topic()
    topic.credit("gap", 1)
    topic.credit("gap", 3)
    topic.put("broken", b"{", headers(1))
    topic.put("money", b'{"amount": 1, "currency": "XXX"}', [*headers(1), ("own", b"kept")])
    topic.credit("money", 2)
    topic.credit("well", 1)
    topic.flush()
    source = topic.source(dead_letters=letters, **NOW)
    with App(store_url) as app:
        register(app, source)
        app.catch_up()
        app.catch_up()
        assert balances(app) == {"gap": 1, "well": 1}
        assert [(lane, status) for lane, _, status in items(app, projection="balances")] == [
            ("broken", "dead"),
            ("gap", "dead"),
            ("money", "dead"),
            ("money", "pending"),
        ]
    found = {message.key(): message for message in read_topic(kafka_broker, letters)}
    assert set(found) == {b"gap", b"broken", b"money"}
    money = found[b"money"]
    told = dict(money.headers() or [])
    assert money.value() == b'{"amount": 1, "currency": "XXX"}'
    assert told["own"] == b"kept"
    assert told["holdfast-version"] == b"1"
    assert {name: value for name, value in told.items() if name.startswith("holdfast-dead-")} == {
        "holdfast-dead-topic": topic.name.encode(),
        "holdfast-dead-partition": b"0",
        "holdfast-dead-offset": b"3",
        "holdfast-dead-timestamp": told["holdfast-dead-timestamp"],
        "holdfast-dead-projection": b"balances",
        "holdfast-dead-lane": b"money",
        "holdfast-dead-error-type": b"Unsupported",
        "holdfast-dead-error-message": b"XXX",
        "holdfast-dead-attempt": b"1",
    }
    assert dict(found[b"gap"].headers() or [])["holdfast-dead-error-type"] == b"VersionGap"
    assert dict(found[b"broken"].headers() or [])["holdfast-dead-error-type"] == b"Undecodable"
    assert found[b"broken"].value() == b"{"


def test_after_the_fix_a_requeue_drains_in_order(store_url: str, topic: Topic) -> None:
    topic.credit("a", 1, currency="XXX")
    for version in (2, 3, 4):
        topic.credit("a", version)
    topic.flush()
    with App(store_url) as app:
        register(app, topic.source())
        app.catch_up()
        assert balances(app) == {}
    seen: list[int] = []
    with App(store_url) as app:

        class Fixed(Projection):
            @on(Credited)
            def credited(self, event: Any, tx: Any) -> None:
                seen.append(event.version)

        app.projection(name="balances", source=topic.source())(Fixed)
        app.queue.requeue(QueueSelection(status="dead"), by="ann")
        app.catch_up()
    assert seen == [1, 2, 3, 4]


def test_letters_of_others_come_back(store_url: str, kafka_broker: str, kafka_topic: Make) -> None:
    topic = Topic(kafka_broker, kafka_topic())
    letters = Topic(kafka_broker, kafka_topic())
    topic.credit("a", 1)
    topic.credit("a", 3)
    topic.flush()
    connect = [
        ("__connect.errors.topic", topic.name.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"77"),
    ]
    letters.put("a", b'{"amount": 10}', [*headers(2), *connect])
    letters.put("b", b'{"amount": 20}', headers(1))
    letters.put("a", b'{"amount": 1}', headers(1))
    letters.flush()
    with App(store_url) as app:
        register(app, topic.source(**NOW))
        app.catch_up()
        app.catch_up()
        assert items(app) == [("a", 3, "dead")]
        preview = app.queue.bring_in("balances", letters.name, by="ann", dry_run=True)
        assert (preview.read, preview.added, preview.known) == (3, 2, 1)
        assert items(app) == [("a", 3, "dead")]
        imported = app.queue.bring_in("balances", letters.name, by="ann", hold=True)
        assert (imported.read, imported.added, imported.known) == (3, 2, 1)
        assert items(app) == [("a", 2, "dead"), ("a", 3, "dead"), ("b", 1, "dead")]
        again = app.queue.bring_in("balances", letters.name, by="ann")
        assert (again.added, again.known) == (0, 3)
        app.queue.requeue(QueueSelection(status="dead"), by="ann")
        app.catch_up()
        assert (balances(app), items(app)) == ({"a": 12, "b": 20}, [])
        assert [row.action for row in app.audit("balances")][-1] == "import"


def test_a_fatal_policy_stops_the_partition_and_queue_add_passes_it(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.credit("a", 2, currency="XXX")
    topic.credit("b", 1)
    topic.flush()
    register(app, topic.source(), policy=Policy())
    with pytest.raises(Exception, match="Unsupported"):
        app.catch_up()
    assert balances(app) == {"a": 1}
    item = app.queue.add("balances", 2, feed=f"{topic.name}[0]", by="ann")
    assert (item.lane, item.status, item.version) == ("a", "dead", 2)
    app.catch_up()
    assert balances(app) == {"a": 1, "b": 1}


def test_a_paused_projection_is_so_on_every_partition(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    topic.credit("a", 1, partition=0)
    topic.credit("b", 1, partition=1)
    topic.flush()
    register(app, topic.source())
    app.pause("balances", by="ann")
    with pytest.raises(Exception, match="paused by ann"):
        app.catch_up()
    assert {s.state for s in app.status()} == {"paused"}
    assert balances(app) == {}
    app.resume("balances", by="ann")
    app.catch_up()
    assert balances(app) == {"a": 1, "b": 1}


def test_a_reset_begins_again(app: App, topic: Topic) -> None:
    for version in (1, 2, 4):
        topic.credit("a", version)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    app.reset("balances")
    assert (rows(app, "holdfast_stream"), balances(app), items(app)) == ([], {}, [])
    app.catch_up()
    app.catch_up()
    assert (balances(app), items(app)) == ({"a": 2}, [("a", 4, "dead")])


def test_one_can_wait_for_an_offset(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.flush()
    register(app, topic.source())
    with app.running():
        app.wait_for("balances", 1, feed=f"{topic.name}[0]")
        assert balances(app) == {"a": 1}
    with pytest.raises(Exception, match="say which one"):
        app.wait_for("balances", 1)


def test_the_groups_offsets_follow(app: App, topic: Topic, kafka_broker: str) -> None:
    for version in (1, 2, 3):
        topic.credit("a", version)
    topic.flush()
    register(app, topic.source())
    with app.running():
        app.wait_for("balances", 3, feed=f"{topic.name}[0]")
    consumer = Consumer(
        {"bootstrap.servers": kafka_broker, "group.id": f"of-{topic.name}.balances"}
    )
    try:
        (place,) = consumer.committed([TopicPartition(topic.name, 0)], timeout=30)
    finally:
        consumer.close()
    assert place.offset == 3


def test_a_stream_that_moves_to_another_partition_goes_on(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    topic.credit("a", 1, partition=0)
    topic.credit("a", 2, partition=0)
    topic.flush()
    register(app, topic.source(gap_seconds=600))
    app.catch_up()
    topic.credit("a", 3, partition=1)
    topic.credit("a", 4, partition=1)
    topic.flush()
    app.catch_up()
    topic.credit("a", 5, partition=0)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 5}


def test_a_parked_policy_may_retry(app: App, topic: Topic) -> None:
    tries: list[int] = []

    class Flaky(Projection):
        @on(Credited)
        def credited(self, event: Any, tx: Any) -> None:
            tries.append(event.version)
            if len(tries) == 1:
                raise ConnectionError("away")

    topic.credit("a", 1)
    topic.credit("a", 2)
    topic.flush()

    policy = Policy.classify(
        otherwise=Park(), backoff=Backoff(max_attempts=None, delay_seconds=0.01)
    )
    app.projection(source=topic.source(), policy=policy)(Flaky)
    app.catch_up()
    assert tries == [1, 1, 2]
    assert items(app) == []


def test_a_stream_on_two_partitions_is_one_stream(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    """Each version comes where the one before it did not, while both are read."""
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    register(app, topic.source(gap_seconds=600))
    with app.running():
        for version in range(1, 9):
            topic.credit("a", version, partition=version % 2)
            topic.flush()
            place = f"{topic.name}[{version % 2}]"
            app.wait_for("balances", (version + 1) // 2, feed=place, timeout_seconds=30)
        wait_until(lambda: balances(app) == {"a": 8}, 30, "all to be applied")
    assert items(app) == []


def test_without_versions_a_row_may_be_changed_from_two_partitions(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    register(app, topic.source(contiguous=False))
    with app.running():
        for number in range(40):
            topic.put("a", b'{"amount": 1}', headers(None), partition=number % 2)
            topic.flush()
        app.wait_for("balances", 1, feed=f"{topic.name}[0]", timeout_seconds=60)
        wait_until(lambda: balances(app) == {"a": 40}, 60, "all to be applied")


@pytest.mark.parametrize("protocol", ["cooperative", "eager", "consumer"])
def test_every_protocol_of_groups_is_understood(
    store_url: str, kafka_broker: str, kafka_topic: Make, protocol: str
) -> None:
    settings = {
        "cooperative": {},
        "eager": {"partition.assignment.strategy": "range"},
        "consumer": {"group.protocol": "consumer"},
    }[protocol]
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    topic.credit("a", 1, partition=0)
    topic.credit("b", 1, partition=1)
    topic.flush()
    with App(store_url) as app:
        register(app, topic.source(settings=settings))
        with app.running():
            for number in (0, 1):
                app.wait_for("balances", 1, feed=f"{topic.name}[{number}]", timeout_seconds=60)
        assert balances(app) == {"a": 1, "b": 1}


def test_a_broker_that_is_away_is_told_of(app: App) -> None:
    register(app, Topic("127.0.0.1:9", "nowhere").source())
    with app.running():
        wait_until(lambda: bool(app.status()), 60, "a status")
        wait_until(lambda: app.status()[0].waiting_for is not None, 60, "a reason to wait")
    (status,) = app.status()
    assert not status.is_head_known
    assert "127.0.0.1:9" in str(status.waiting_for)


def test_a_new_projection_may_begin_at_the_end(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic(partitions=1))
    topic.credit("a", 1)
    topic.flush()
    register(app, topic.source(start="latest", first_version=None))
    app.catch_up()
    topic.credit("a", 2)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 1}
    admin = AdminClient({"bootstrap.servers": kafka_broker})
    admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result(30)
    wait_until(
        lambda: len(admin.list_topics(topic.name, timeout=30).topics[topic.name].partitions) == 2,
        30,
        "the second partition",
    )
    topic = Topic(kafka_broker, topic.name)
    topic.credit("b", 1, partition=1)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 1, "b": 1}
    with app.running():
        app.reset("balances")
        ends = {f"{topic.name}[0]": 2, f"{topic.name}[1]": 1}
        wait_until(lambda: {s.feed: s.position for s in app.status()} == ends, 30, "the ends")
    assert balances(app) == {}


def test_a_projection_begins_at_a_time_and_is_moved_to_the_end(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    topic.credit("a", 1, partition=0)
    topic.credit("b", 1, partition=1)
    topic.flush()
    time.sleep(0.01)  # Times of records are milliseconds.
    start = datetime.now(UTC)
    topic.credit("a", 2, partition=0)
    topic.flush()
    register(app, topic.source(start=start, first_version=None))
    app.catch_up()
    assert balances(app) == {"a": 1}
    topic.credit("a", 3, partition=0)
    topic.credit("a", 4, partition=0)
    topic.credit("b", 2, partition=1)
    topic.flush()
    with pytest.raises(ConfigError, match="say which: feed="):
        app.forward("balances", 4, by="ann")
    with pytest.raises(ConfigError, match="there is no partition 'x'"):
        app.forward("balances", 4, feed="x", by="ann")
    passed = app.forward("balances", "now", by="ann", preview=True)
    assert sorted(move.events for move in passed) == [1, 2]
    assert app.forward("balances", "now", by="ann") == passed
    topic.credit("b", 3, partition=1)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"a": 1, "b": 1}


def test_records_that_are_gone_are_a_fault_until_a_person_goes_on(
    app: App, topic: Topic, kafka_broker: str
) -> None:
    for version in (1, 2, 3, 4):
        topic.credit("a", version)
    topic.credit("b", 1)
    topic.flush()
    feed = f"{topic.name}[0]"
    register(app, topic.source(**NOW))
    app.catch_up()
    admin = AdminClient({"bootstrap.servers": kafka_broker})
    topic.credit("b", 2)
    topic.credit("b", 3)
    topic.flush()
    (future,) = admin.delete_records([TopicPartition(topic.name, 0, 6)]).values()
    future.result(30)
    with pytest.raises(ProjectionFaulted, match=r"offset 5 of .* begins at 6"):
        app.catch_up()
    app.forward("balances", 6, feed=feed, by="ann", note="they are gone")
    app.catch_up()
    app.catch_up()
    assert balances(app) == {"a": 4, "b": 1}
    assert items(app) == [("b", 3, "dead")]
    assert app.audit("balances")[0].action == "forward"
