"""What happens to topics: they are missing, made again, cut, given more partitions, and have holes.

Nothing is ever passed over silently. Where a topic no longer has what comes next, the projection
stops with a fault that says which offsets are meant, its rows stay as they are, and a reset begins
again with what there is.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from holdfast import App, Backoff, Policy, ProjectionFaulted, Retry, on
from holdfast.kafka import group_worker as worker
from holdfast.runtime.status import ProjectionStatus
from tests.support.bank_topic import (
    Balance,
    Balances,
    Credited,
    Make,
    Topic,
    balances,
    headers,
    read_topic,
    register,
)
from tests.support.kafka import ADMIN_SECONDS, create_topic, delete_topic
from tests.support.postgres import wait_until

QUICK = {"topic.metadata.refresh.interval.ms": 500}
"""A member of a group sees new partitions as soon as that."""


@pytest.fixture
def topic(kafka_broker: str, kafka_topic: Make) -> Topic:
    return Topic(kafka_broker, kafka_topic())


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        yield app


@pytest.fixture
def admin(kafka_broker: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker})


def credit(topic: Topic, account: str, versions: range) -> None:
    for version in versions:
        topic.credit(account, version)
    topic.flush()


def status_of(app: App, partition: int = 0) -> ProjectionStatus:
    (found,) = (s for s in app.status() if s.feed.endswith(f"[{partition}]"))
    return found


def check_stopped(app: App, *words: str, rows: dict[str, int]) -> None:
    """A run ends with a fault that has these words, and the rows stay as they are."""
    with pytest.raises(ProjectionFaulted) as raised:
        app.catch_up()
    message = str(raised.value)
    assert [word for word in words if word not in message] == [], message
    status = status_of(app)
    assert status.state == "faulted"
    assert status.last_error is not None
    assert status.last_error.message in message
    assert balances(app) == rows
    with app.running() as running:
        wait_until(lambda: bool(running.faulted), 30, "the fault in a group")
    assert [word for word in words if word not in running.faulted["balances"]] == []
    assert balances(app) == rows


def make_again(topic: Topic) -> None:
    """Another topic of the same name."""
    delete_topic(topic.bootstrap, topic.name)
    wait_until(lambda: not is_there(topic), 30, "the topic to go")
    create_topic(topic.bootstrap, topic.name)


def is_there(topic: Topic) -> bool:
    admin = AdminClient({"bootstrap.servers": topic.bootstrap, "log_level": 0})
    return topic.name in admin.list_topics(timeout=ADMIN_SECONDS).topics


def test_a_topic_that_is_missing_is_a_fault_until_it_is_made(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    topic = Topic(kafka_broker, kafka_topic())
    delete_topic(kafka_broker, topic.name)
    wait_until(lambda: not is_there(topic), 30, "the topic to go")
    register(app, topic.source())
    with pytest.raises(ProjectionFaulted, match=f"topic '{topic.name}' is not at"):
        app.catch_up()
    (status,) = app.status()
    assert status.state == "faulted"
    with app.running() as running:
        wait_until(lambda: bool(running.faulted), 30, "the fault in a group")
    create_topic(kafka_broker, topic.name)
    credit(topic, "a", range(1, 4))
    app.catch_up()
    assert balances(app) == {"a": 3}
    assert status_of(app).state == "stopped"


@pytest.mark.parametrize("records", [0, 2, 3, 8])
def test_a_topic_that_was_made_again_is_another_one(app: App, topic: Topic, records: int) -> None:
    """Whether it ends before the checkpoint, at it, or after it."""
    credit(topic, "a", range(1, 4))
    register(app, topic.source())
    app.catch_up()
    make_again(topic)
    credit(topic, "b", range(1, records + 1))
    check_stopped(app, repr(topic.name), "up to offset 3", "made again", "reset", rows={"a": 3})
    assert status_of(app).position == 3

    app.reset("balances")
    app.catch_up()
    assert balances(app) == ({"b": records} if records else {})
    assert status_of(app).position == records


@pytest.mark.parametrize("records", [0, 8])
def test_a_topic_that_is_made_again_while_it_is_read_is_another_one(
    app: App, topic: Topic, records: int
) -> None:
    credit(topic, "a", range(1, 4))
    register(app, topic.source(settings=QUICK))
    app.catch_up()
    with app.running() as running:
        wait_until(lambda: status_of(app).leader is not None, 30, "the group")
        make_again(topic)
        credit(topic, "b", range(1, records + 1))
        wait_until(lambda: bool(running.faulted), 60, "the fault")
    assert balances(app) == {"a": 3}
    assert topic.name in running.faulted["balances"]
    app.reset("balances")
    app.catch_up()
    assert balances(app) == ({"b": records} if records else {})


def test_a_topic_that_is_made_again_with_as_many_records_is_another_one(
    app: App, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to read, so the records themselves can't show it."""
    monkeypatch.setattr(worker, "TOPIC_CHECK_SECONDS", 0.5)
    credit(topic, "a", range(1, 4))
    register(app, topic.source())
    app.catch_up()
    with app.running() as running:
        wait_until(lambda: status_of(app).leader is not None, 30, "the group")
        make_again(topic)
        credit(topic, "b", range(1, 4))
        wait_until(lambda: bool(running.faulted), 60, "the fault")
    assert topic.name in running.faulted["balances"]
    assert "offset 3" in running.faulted["balances"]
    assert balances(app) == {"a": 3}


def test_a_topic_that_is_deleted_while_it_is_read_is_a_fault(app: App, topic: Topic) -> None:
    credit(topic, "a", range(1, 4))
    register(app, topic.source(settings=QUICK))
    app.catch_up()
    with app.running() as running:
        wait_until(lambda: status_of(app).leader is not None, 30, "the group")
        delete_topic(topic.bootstrap, topic.name)
        wait_until(lambda: bool(running.faulted), 60, "the fault")
    assert topic.name in running.faulted["balances"]
    assert "offset 3" in running.faulted["balances"]
    assert balances(app) == {"a": 3}


def test_what_retention_took_before_it_was_applied_is_a_fault(
    app: App, topic: Topic, admin: AdminClient
) -> None:
    credit(topic, "a", range(1, 4))
    register(app, topic.source())
    app.catch_up()
    credit(topic, "a", range(4, 8))
    credit(topic, "b", range(1, 6))
    cut(admin, topic, before=7)
    check_stopped(app, topic.name, "offset 3", "begins at 7", "4 records", rows={"a": 3})

    app.reset("balances")
    app.catch_up()
    assert balances(app) == {"b": 5}


def test_what_retention_took_after_it_was_applied_is_not_missed(
    app: App, topic: Topic, admin: AdminClient
) -> None:
    credit(topic, "a", range(1, 4))
    register(app, topic.source())
    app.catch_up()
    cut(admin, topic, before=3)
    app.catch_up()
    credit(topic, "a", range(4, 6))
    app.catch_up()
    assert balances(app) == {"a": 5}


def test_a_projection_begins_with_what_retention_has_left(
    app: App, topic: Topic, admin: AdminClient
) -> None:
    credit(topic, "a", range(1, 4))
    credit(topic, "b", range(1, 3))
    cut(admin, topic, before=3)
    register(app, topic.source())
    app.catch_up()
    assert balances(app) == {"b": 2}
    assert status_of(app).position == 5


def test_a_checkpoint_beyond_the_end_is_a_fault(app: App, topic: Topic) -> None:
    """As when the brokers are restored from an older copy."""
    credit(topic, "a", range(1, 4))
    register(app, topic.source())
    app.catch_up()
    with app._database.writing() as connection:
        connection.tx.execute("UPDATE holdfast_checkpoint SET position = 9")
    check_stopped(app, topic.name, "offset 9", "ends at 3", "reset", rows={"a": 3})
    app.reset("balances")
    app.catch_up()
    assert balances(app) == {"a": 3}


def cut(admin: AdminClient, topic: Topic, *, before: int) -> None:
    """Deletes what is before an offset, as retention does."""
    place = TopicPartition(topic.name, 0, before)
    admin.delete_records([place])[place].result(ADMIN_SECONDS)


def test_streams_that_move_to_a_new_partition_go_on(
    app: App, topic: Topic, admin: AdminClient
) -> None:
    accounts = [f"account-{number}" for number in range(30)]
    for account in accounts:
        credit(topic, account, range(1, 4))
    register(app, topic.source(settings=QUICK))
    app.catch_up()
    with app.running():
        wait_until(lambda: status_of(app).leader is not None, 30, "the group")
        grow(admin, topic, partitions=3)
        later = Topic(topic.bootstrap, topic.name)
        for account in accounts:
            credit(later, account, range(4, 8))
        wait_until(lambda: balances(app) == dict.fromkeys(accounts, 7), 60, "those that moved")
    assert sorted(status.feed for status in app.status()) == [
        f"{topic.name}[{number}]" for number in range(3)
    ]
    assert all(status.events_processed for status in app.status())
    assert app.queue.list() == []


def test_streams_that_move_before_their_partition_is_read_go_on(
    app: App, kafka_broker: str, kafka_topic: Make
) -> None:
    """What is on the new partition waits for what is still on the old one, however long."""
    topic = Topic(kafka_broker, kafka_topic(partitions=2))
    is_away = threading.Event()
    is_away.set()

    class Gated(Balances):
        @on(Credited)
        def credited(self, row: Balance, event: Any) -> None:
            if event.stream == "x" and is_away.is_set():
                raise ConnectionError("the bank is away")
            super().credited(row, event)

    again = Policy(on_error=Retry(Backoff.constant(0.2, max_attempts=None)))
    source = topic.source(gap_seconds=0.2)
    app.projection(name="balances", source=source, policy=again)(Gated)
    topic.credit("x", 1, partition=0)
    for account in ("a", "b", "c"):
        for version in range(1, 7):
            topic.credit(account, version, partition=0 if version <= 3 else 1)
    topic.flush()
    with app.running():
        wait_until(lambda: len(waiting(app)) == 9, 30, "what is on the new partition")
        is_away.clear()
        wait_until(lambda: waiting(app) == [], 60, "what has waited")
        wait_until(lambda: status_of(app, 0).lag_events == 0, 60, "the old partition")
    assert balances(app) == {"a": 6, "b": 6, "c": 6, "x": 1}


def waiting(app: App) -> list[tuple[str, int]]:
    return sorted((item.stream, item.version) for item in app.queue.list())


def grow(admin: AdminClient, topic: Topic, *, partitions: int) -> None:
    """Gives a topic more partitions; returns when everybody can see them."""
    more = NewPartitions(topic.name, partitions)
    admin.create_partitions([more])[topic.name].result(ADMIN_SECONDS)

    def are_there() -> bool:
        found = admin.list_topics(topic.name, timeout=ADMIN_SECONDS).topics[topic.name].partitions
        return len(found) == partitions and all(part.leader >= 0 for part in found.values())

    wait_until(are_there, 30, "the partitions")


class Transactions:
    """A producer whose transactions the test ends, one way or the other."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic.name
        self._producer = Producer(
            {"bootstrap.servers": topic.bootstrap, "transactional.id": f"tests-{topic.name}"}
        )
        self._producer.init_transactions(ADMIN_SECONDS)

    @contextmanager
    def begin(self, *, aborts: bool = False) -> Iterator[Callable[[str, range], None]]:
        """What is given to the function is in it; at the end of the block it is committed."""
        self._producer.begin_transaction()
        yield self._put
        self._producer.flush(ADMIN_SECONDS)
        if aborts:
            self._producer.abort_transaction(ADMIN_SECONDS)
        else:
            self._producer.commit_transaction(ADMIN_SECONDS)

    def _put(self, account: str, versions: range) -> None:
        for version in versions:
            found: list[Any] = list(headers(version))
            self._producer.produce(self._topic, b'{"amount": 1}', account, headers=found)
        assert self._producer.flush(ADMIN_SECONDS) == 0


def test_an_aborted_transaction_was_never_there(app: App, topic: Topic) -> None:
    transactions = Transactions(topic)
    with transactions.begin() as put:
        put("a", range(1, 4))
    with transactions.begin(aborts=True) as put:
        put("a", range(4, 6))
        put("b", range(1, 3))
    with transactions.begin() as put:
        put("a", range(4, 5))
    register(app, topic.source())
    app.catch_up()
    assert balances(app) == {"a": 4}
    assert app.queue.list() == []
    # Three that end a transaction, and four that were aborted, are numbers without events.
    check_at_end(app, topic, 11)


def test_a_topic_that_ends_with_an_aborted_transaction_has_an_end(app: App, topic: Topic) -> None:
    transactions = Transactions(topic)
    with transactions.begin(aborts=True) as put:
        put("a", range(1, 4))
    register(app, topic.source())
    app.catch_up()
    check_at_end(app, topic, 4)
    with app.running():
        with transactions.begin(aborts=True) as put:
            put("a", range(1, 4))
        wait_until(lambda: status_of(app).position == 8, 30, "the end")
        with transactions.begin() as put:
            put("a", range(1, 3))
        wait_until(lambda: status_of(app).position == 11, 30, "the end")
    assert balances(app) == {"a": 2}
    check_at_end(app, topic, 11)


def test_an_open_transaction_is_not_read_before_it_ends(app: App, topic: Topic) -> None:
    transactions = Transactions(topic)
    credit(topic, "a", range(1, 3))
    register(app, topic.source())
    with transactions.begin() as put:
        put("a", range(3, 5))
        app.catch_up()
        assert balances(app) == {"a": 2}
        assert status_of(app).position == 2
    app.catch_up()
    assert balances(app) == {"a": 4}
    check_at_end(app, topic, 5)


def check_at_end(app: App, topic: Topic, end: int) -> None:
    """Where the projection is, the topic ends, and so does the group's lag."""
    status = status_of(app)
    assert (status.position, status.head, status.lag_events) == (end, end, 0)
    assert topic.source().heads() == {f"{topic.name}[0]": end}


def test_a_compacted_topic_has_holes(app: App, kafka_broker: str, kafka_topic: Make) -> None:
    """What is left of each key is its last record, which is applied though others are missing."""
    topic = Topic(
        kafka_broker,
        kafka_topic(
            cleanup_policy="compact",
            segment_bytes="1048576",
            segment_ms="100",
            min_cleanable_dirty_ratio="0.0001",
            max_compaction_lag_ms="100",
        ),
    )
    for version in range(1, 6):
        for account in ("a", "b", "c"):
            credit(topic, account, range(version, version + 1))

    def is_compacted() -> bool:
        credit(topic, "d", range(1, 2))  # What is written last is not compacted.
        return len([m for m in read_topic(kafka_broker, topic.name) if m.key() != b"d"]) == 3

    wait_until(is_compacted, 60, "the broker to compact the topic")
    register(app, topic.source(first_version=None))
    app.catch_up()
    assert balances(app) == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert app.queue.list() == []
    assert status_of(app).lag_events == 0
    for account in ("a", "b", "c"):
        credit(topic, account, range(6, 7))
    app.catch_up()
    assert balances(app) == {"a": 2, "b": 2, "c": 2, "d": 1}
