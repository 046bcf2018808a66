"""Where a topic is awkward: what waits is neither passed over, nor doubled, nor reordered."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import DELETE, App, ConfigError, TableProjection, on
from holdfast.kafka import Decoded, KafkaSource, Record
from holdfast.runtime.store.queue_items import QueueSelection
from tests.support.bank_topic import (
    Balance,
    Balances,
    Credited,
    Topic,
    balances,
    headers,
    register,
    rows,
)
from tests.support.kafka_mock import MockCluster
from tests.support.limits import set_limits

NOW = {"gap_seconds": 0.0}


@pytest.fixture
def topic(mock_kafka: MockCluster) -> Topic:
    return Topic(mock_kafka.bootstrap, mock_kafka.create_topic(partitions=1))


@pytest.fixture
def other(mock_kafka: MockCluster) -> Topic:
    return Topic(mock_kafka.bootstrap, mock_kafka.create_topic(partitions=1))


@pytest.fixture
def app(sqlite_url: str) -> Iterator[App]:
    with App(sqlite_url) as app:
        yield app


def items(app: App) -> list[tuple[str, int, str]]:
    found = app.queue.list()
    return sorted((item.lane, item.version, item.status) for item in found)


@pytest.mark.parametrize("restart_seconds", [60.0, None])
def test_a_stream_that_begins_again(
    store_url: str, topic: Topic, restart_seconds: float | None
) -> None:
    """After a set time it is a new one; sooner, or if the source does not say so, it is not."""

    def put(version: int, second: int, currency: str = "EUR") -> None:
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        recorded_at = ("holdfast-recorded-at", at.isoformat().encode())
        value = f'{{"amount": {10**version}, "currency": "{currency}"}}'
        topic.put("a", value.encode(), [*headers(version), recorded_at])

    with App(store_url) as app:
        register(app, topic.source(restart_seconds=restart_seconds, **NOW))
        for version, second in ((1, 0), (2, 1), (3, 2), (1, 50), (1, 63), (1, 70), (2, 71)):
            put(version, second)
        put(3, 72, "XXX")
        topic.flush()
        app.catch_up()
        assert balances(app) == {"a": 1110 if restart_seconds is None else 1220}
        assert items(app) == ([] if restart_seconds is None else [("a", 3, "dead")])
        app.queue.resolve(QueueSelection(status="dead"), by="ann")
        put(1, 200)
        put(2, 201)
        topic.flush()
        app.catch_up()
        assert balances(app) == {"a": 1110 if restart_seconds is None else 1330}


def test_there_is_work_for_as_many_processes_as_partitions(
    app: App, mock_kafka: MockCluster
) -> None:
    register(app, Topic(mock_kafka.bootstrap, mock_kafka.create_topic(partitions=3)).source())
    assert app.most_processes() == 3


def requeue(app: App) -> None:
    app.queue.requeue(QueueSelection(status="dead"), by="ann")
    app.catch_up()


def lenient(record: Record) -> Decoded:
    """Reads also `amount=5`, which our envelope does not."""
    assert record.value is not None
    text = record.value.decode()
    if text.startswith("amount="):
        text = f'{{"amount": {text.removeprefix("amount=")}}}'
    version = (record.header("holdfast-version") or b"").decode()
    stream = (record.key or b"s").decode()
    return Decoded(stream=stream, type="Credited", data=text, version=version)


def test_rows_and_versions_are_of_one_moment(app: App, topic: Topic, other: Topic) -> None:
    """A row that outlives its stream's version in memory is not taken for current."""
    set_limits(app, cached_streams=1)
    both = KafkaSource(
        [topic.name, other.name], bootstrap=topic.bootstrap, group=f"of-{topic.name}"
    )
    register(app, both)
    with app.running():
        topic.credit("s", 1, 10)
        topic.put("t", b"{}", headers(1, "Nobody"))
        topic.flush()
        app.wait_for("balances", 2, feed=f"{topic.name}[0]", timeout_seconds=30)
        other.credit("s", 2, 100)
        other.flush()
        app.wait_for("balances", 1, feed=f"{other.name}[0]", timeout_seconds=30)
        topic.credit("s", 3, 1000)
        topic.flush()
        app.wait_for("balances", 3, feed=f"{topic.name}[0]", timeout_seconds=30)
    app.catch_up()
    assert balances(app) == {"s": 1110}


def test_without_versions_a_lane_keeps_the_order_of_the_feed(sqlite_url: str, topic: Topic) -> None:
    class Closing(Balances):
        failing = True

        @on("Closed")
        def closed(self, row: Balance, event: Any) -> Any:
            return DELETE

        @on(Credited)
        def credited(self, row: Balance, event: Any) -> None:
            if self.failing and event.data.amount == 7:
                raise ValueError("not yet")
            row.amount += event.data.amount

    topic.put("s", b'{"amount": 1}', headers(None))
    topic.put("s", b'{"amount": 7}', headers(None))
    topic.put("s", None)
    topic.flush()
    with App(sqlite_url) as app:
        source = topic.source(contiguous=False, tombstones="Closed")
        app.projection(name="balances", source=source)(Closing)
        app.catch_up()
        assert balances(app) == {"s": 1}
        Closing.failing = False
        requeue(app)
        assert (balances(app), items(app)) == ({}, [])


def test_what_is_mended_takes_its_place_in_the_lane(sqlite_url: str, topic: Topic) -> None:
    topic.credit("s", 1)
    topic.credit("s", 3, 100)
    topic.put("s", b"amount=10", headers(2))
    topic.flush()
    with App(sqlite_url) as app:
        register(app, topic.source(**NOW))
        app.catch_up()
        app.catch_up()
        assert balances(app) == {"s": 1}
    with App(sqlite_url) as app:
        register(app, topic.source(decode=lenient, **NOW))
        requeue(app)
        requeue(app)
        assert (balances(app), items(app)) == ({"s": 111}, [])


def test_what_is_mended_finds_its_lane(sqlite_url: str, topic: Topic) -> None:
    topic.credit("s", 1)
    topic.credit("s", 2, 10, currency="XXX")
    topic.put(None, b"amount=100", headers(3))
    topic.credit("s", 4, 1000)
    topic.flush()
    with App(sqlite_url) as app:
        register(app, topic.source(**NOW))
        app.catch_up()
        assert balances(app) == {"s": 1}

    class Lenient(TableProjection[Balance]):
        @on(Credited)
        def credited(self, row: Balance, event: Any) -> None:
            row.amount += event.data.amount

    with App(sqlite_url) as app:
        source = topic.source(decode=lenient, **NOW)
        app.projection(name="balances", source=source)(Lenient)
        requeue(app)
        requeue(app)
        assert (balances(app), items(app)) == ({"s": 1111}, [])


def test_a_stream_that_begins_too_low_is_seen(sqlite_url: str, topic: Topic) -> None:
    for version in (0, 1, 2):
        topic.credit("s", version)
    topic.flush()
    with App(sqlite_url) as app:
        register(app, topic.source(**NOW))
        app.catch_up()
        app.catch_up()
        assert balances(app) == {}
        assert items(app) == [("s", 0, "dead"), ("s", 1, "pending"), ("s", 2, "pending")]
        (dead,) = app.queue.list(QueueSelection(status="dead"))
        assert "first_version=0" in str(dead.error_message)
    with App(sqlite_url) as app:
        register(app, topic.source(first_version=0, **NOW))
        requeue(app)
        assert (balances(app), items(app)) == ({"s": 3}, [])


def test_what_an_early_one_missed_may_come_after_it_was_resolved(app: App, topic: Topic) -> None:
    for version in (1, 2, 5):
        topic.credit("s", version)
    topic.flush()
    register(app, topic.source(**NOW))
    app.catch_up()
    app.catch_up()
    app.queue.resolve(QueueSelection(status="dead"), by="ann")
    for version in (3, 4, 6):
        topic.credit("s", version)
    topic.flush()
    app.catch_up()
    app.catch_up()
    assert balances(app) == {"s": 5}
    assert items(app) == [("s", 5, "resolved")]


def test_an_event_that_waited_for_another_has_its_own_time_to_wait(
    sqlite_url: str, topic: Topic
) -> None:
    topic.credit("s", 1, currency="XXX")
    topic.credit("s", 3)
    topic.flush()
    with App(sqlite_url) as app:
        register(app, topic.source(gap_seconds=600))
        app.catch_up()
        app.queue.resolve(QueueSelection(status="dead"), by="ann")
        app.catch_up()
        assert items(app) == [("s", 1, "resolved"), ("s", 3, "failed")]
        topic.credit("s", 2)
        topic.flush()
        app.catch_up()
        assert balances(app) == {"s": 2}


def test_a_resolved_record_that_was_no_event_counts_for_nothing(app: App, topic: Topic) -> None:
    topic.put("s", b"{", headers(16))
    topic.flush()
    register(app, topic.source(first_version=None, **NOW))
    app.catch_up()
    app.queue.resolve(QueueSelection(status="dead"), by="ann")
    topic.credit("s", 17)
    topic.flush()
    app.catch_up()
    assert balances(app) == {"s": 1}


@pytest.mark.parametrize("name", ["holdfast.undecodable", "holdfast.nothing", "Closed"])
def test_types_of_ours_are_not_for_others(app: App, topic: Topic, name: str) -> None:
    topic.put("s", b"{}", headers(1, name))
    topic.credit("b", 1)
    topic.flush()
    register(app, topic.source(tombstones="Closed"))
    app.catch_up()
    assert balances(app) == {"b": 1}
    assert [(lane, status) for lane, _, status in items(app)] == [("s", "dead")]


def test_letters_of_two_topics_are_told_apart(
    app: App, topic: Topic, other: Topic, mock_kafka: MockCluster
) -> None:
    third = Topic(mock_kafka.bootstrap, mock_kafka.create_topic(partitions=1))
    other.credit("a", 1, 10)
    third.credit("b", 1, 20)
    other.flush()
    third.flush()
    register(app, topic.source())
    for letters in (other, third):
        imported = app.queue.bring_in("balances", letters.name, by="ann")
        assert (imported.added, imported.known) == (1, 0)
    app.catch_up()
    assert balances(app) == {"a": 10, "b": 20}


def test_letters_without_versions_come_in_once(app: App, topic: Topic, other: Topic) -> None:
    other.put("a", b'{"amount": 10}', headers(None))
    other.flush()
    topic.put("z", b'{"amount": 1}', headers(None))
    topic.flush()
    register(app, topic.source(contiguous=False, window_events=1))
    app.catch_up()
    for added in (1, 0, 0):
        assert app.queue.bring_in("balances", other.name, by="ann").added == added
        app.catch_up()
    assert balances(app) == {"a": 10, "z": 1}
    assert rows(app, "holdfast_stream") == []


@pytest.mark.parametrize("versions", [True, False])
def test_copies_of_a_letter_are_one_item(
    app: App, topic: Topic, other: Topic, versions: bool
) -> None:
    """They have an origin in common, and one id; or a version."""
    place = [
        ("__connect.errors.topic", topic.name.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"9"),
    ]
    known = headers(1) if versions else [*headers(None), *place]
    for _ in range(2):
        other.put("a", b'{"amount": 10}', known)
    other.flush()
    register(app, topic.source(contiguous=versions))
    for dry_run in (True, False):
        imported = app.queue.bring_in("balances", other.name, by="ann", dry_run=dry_run)
        assert (imported.read, imported.added, imported.known) == (2, 1, 1)
    other.put("a", b'{"amount": 10}', known)
    other.flush()
    app.queue.bring_in("balances", other.name, by="ann")
    assert versions or len(items(app)) == 1
    app.catch_up()
    assert balances(app) == {"a": 10}


def test_a_letter_from_a_partition_that_is_not_there_finds_another(
    app: App, topic: Topic, other: Topic
) -> None:
    place = [
        ("__connect.errors.topic", topic.name.encode()),
        ("__connect.errors.partition", b"7"),
        ("__connect.errors.offset", b"0"),
    ]
    other.put("a", b'{"amount": 10}', [*headers(1), *place])
    other.flush()
    register(app, topic.source())
    app.queue.bring_in("balances", other.name, by="ann")
    app.catch_up()
    assert balances(app) == {"a": 10}


def test_nobody_goes_forward_beyond_the_end(app: App, topic: Topic) -> None:
    topic.credit("a", 1)
    topic.flush()
    register(app, topic.source())
    app.catch_up()
    with pytest.raises(ConfigError, match="ends at offset 1"):
        app.forward("balances", 100, feed=f"{topic.name}[0]", by="ann")


def test_a_letter_takes_no_place_of_the_feed(app: App, topic: Topic, other: Topic) -> None:
    """Its offset may be one that the topic has yet to give to another event."""
    place = [
        ("__connect.errors.topic", topic.name.encode()),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"1"),
    ]
    other.put("q", b'{"amount": 5, "currency": "XXX"}', [*headers(1), *place])
    other.flush()
    topic.credit("r", 1)
    topic.flush()
    register(app, topic.source())
    app.queue.bring_in("balances", other.name, by="ann")
    app.catch_up()
    topic.credit("r", 2, currency="XXX")
    topic.credit("r", 3)
    topic.flush()
    app.catch_up()
    assert items(app) == [("q", 1, "dead"), ("r", 2, "dead"), ("r", 3, "pending")]


def test_own_letters_are_known_while_their_events_wait(
    app: App, topic: Topic, other: Topic
) -> None:
    topic.credit("a", 1, currency="XXX")
    topic.flush()
    register(app, topic.source(dead_letters=other.name))
    app.catch_up()
    app.catch_up()
    imported = app.queue.bring_in("balances", other.name, by="ann")
    assert (imported.read, imported.added) == (1, 0)


def test_of_two_who_change_a_row_only_one_does(app: App, topic: Topic, other: Topic) -> None:
    """Though one of them has applied more events than the other."""
    both = KafkaSource(
        [topic.name, other.name],
        bootstrap=topic.bootstrap,
        group=f"of-{topic.name}",
        contiguous=False,
    )
    register(app, both)
    with app.running():
        topic.put("s", b'{"amount": 1}', headers(None))
        topic.flush()
        app.wait_for("balances", 1, feed=f"{topic.name}[0]", timeout_seconds=30)
        other.put("s", b'{"amount": 10}', headers(None))
        other.flush()
        app.wait_for("balances", 1, feed=f"{other.name}[0]", timeout_seconds=30)
        for _ in range(5):
            topic.put("s", b'{"amount": 100}', headers(None))
        topic.flush()
        app.wait_for("balances", 6, feed=f"{topic.name}[0]", timeout_seconds=30)
    assert balances(app) == {"s": 511}
