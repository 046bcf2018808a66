"""Publishing through kills and outages: nothing is lost, and no stream is out of order."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from holdfast import App, TableProjection, on
from holdfast.kafka import KafkaSource
from holdfast.model.event import Event
from holdfast.runtime.signals import PollFailed, Signal
from tests.conftest import MakeTopic
from tests.support.kafka import KafkaBroker, create_topic
from tests.support.kafka_read import read_topic, taken, versions
from tests.support.postgres import wait_until
from tests.support.sql import execute
from tests.world.app import Moved, Total
from tests.world.appender import Appender
from tests.world.build import build_publisher
from tests.world.process import WorkerProcess
from tests.world.wanted import Topic, Wanted

BATCH_EVENTS = 20
BACKLOG_EVENTS = 300


class Totals(TableProjection[Total]):
    """Each account's sum, in which a lost, doubled or swapped event shows."""

    @on(Moved)
    def moved(self, row: Total, event: Event[Moved]) -> None:
        row.amount += event.data.amount
        row.count += 1
        row.steps.append(event.version)


def test_a_publisher_killed_again_and_again(
    store_url: str,
    kafka_broker: str,
    kafka_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    kill_publishers(store_url, kafka_broker, kafka_topic(partitions=3), tmp_path, 5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_publisher_killed_for_long(
    store_url: str,
    kafka_broker: str,
    kafka_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    kill_publishers(store_url, kafka_broker, kafka_topic(partitions=3), tmp_path, 100)


def kill_publishers(
    url: str,
    broker: str,
    topic: str,
    folder: Path,
    kills: int,
) -> None:
    """A publisher that is killed is replaced, while events go on being appended."""
    into = Topic(broker, topic)
    wanted = Wanted(url, publishes=into, batch_events=BATCH_EVENTS)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with build_publisher(url, into) as app:
        app.migrate()
        app.projection(Totals)
        app.catch_up()

        with Appender(app, seed=seed, may_append=lambda: backlog(app) < BACKLOG_EVENTS) as appender:
            for _ in range(kills):
                with WorkerProcess(wanted) as worker:
                    app.wait_for("publish", position(app) + 1, timeout_seconds=60)
                    time.sleep(chance.uniform(0, 0.1))  # Any moment may be the wrong one.
        with WorkerProcess(wanted) as worker:
            head = app.journal.head()
            app.wait_for("publish", head, timeout_seconds=60)
            # The one before may have done it all: a signal while it starts is another matter.
            wait_until(lambda: any("running" in line for line in worker.lines), 60, repr(worker))
            assert worker.stop() == 0, worker
        app.catch_up()
        twice = check_topic(app, broker, topic)
        print(f"{kills} kills; {head} events, {twice} of them twice")
        assert sorted(e.id for e in app.journal.read_raw()) == sorted(appender.acknowledged)
        check_readers(app, url, broker, topic, folder)


def test_a_broker_that_is_killed_and_one_that_is_frozen(
    sqlite_url: str, own_kafka_broker: KafkaBroker
) -> None:
    """Nothing is parked for it, nothing gives up, and it goes on by itself."""
    broker = own_kafka_broker
    topic = create_topic(broker.bootstrap, partitions=3)
    failures: list[str] = []

    def listen(signal: Signal) -> None:
        if isinstance(signal, PollFailed):
            failures.append(signal.error)

    def freeze() -> Callable[[], None]:
        os.kill(broker.pid, signal.SIGSTOP)
        return lambda: os.kill(broker.pid, signal.SIGCONT)

    def kill() -> Callable[[], None]:
        broker.kill()
        return broker.start

    with build_publisher(sqlite_url, Topic(broker.bootstrap, topic)) as app:
        app.listen(listen)
        with Appender(app, seed=1, may_append=lambda: backlog(app) < BACKLOG_EVENTS), app.running():
            for break_down in (freeze, kill):
                app.wait_for("publish", app.journal.head() + 100, timeout_seconds=60)
                mend, told = break_down(), len(failures)
                wait_until(partial(has_more, failures, told), 60, "a failure")
                mend()
            app.wait_for("publish", app.journal.head() + 100, timeout_seconds=60)
        app.catch_up()
        check_topic(app, broker.bootstrap, topic)


def position(app: App) -> int:
    """How far it has published."""
    return next((s.position for s in app.status() if s.projection == "publish"), 0)


def backlog(app: App) -> int:
    return app.journal.head() - position(app)


def has_more(found: Sequence[str], than: int) -> bool:
    return len(found) > than


def check_topic(app: App, broker: str, topic: str) -> int:
    """Who keeps versions sees each stream from 1 to its end; returns how many come twice."""
    expected: dict[str, list[int]] = {}
    for event in app.journal.read_raw():
        expected.setdefault(event.stream, []).append(event.version)
    records = read_topic(broker, topic)
    found = {stream: taken(seen) for stream, seen in versions(records).items()}
    assert found == expected
    assert not app.queue.list()
    return len(records) - sum(map(len, expected.values()))


def check_readers(app: App, url: str, broker: str, topic: str, folder: Path) -> None:
    """A projection on the topic has the rows that one on the journal has."""
    other_url = f"sqlite:///{folder}/reader.db"
    with App(other_url) as reader:
        reader.projection(source=KafkaSource(topic, bootstrap=broker, group=f"of-{topic}"))(Totals)
        reader.catch_up()
        assert not reader.queue.list()
    assert read_totals(other_url) == read_totals(url)


def read_totals(url: str) -> list[tuple[object, ...]]:
    rows = execute(url, "SELECT name, amount, count, steps FROM totals ORDER BY name")
    return [(*row, json.loads(steps) if isinstance(steps, str) else steps) for *row, steps in rows]
