"""Catching up from a topic, beside the same projection catching up from the journal."""

from __future__ import annotations

from contextlib import closing
from functools import cache, partial
from typing import Any

from confluent_kafka import Producer

from bench import journal
from bench.case import Case, Database, Sample, Scale
from bench.cases.holdfast import catch_up, catch_up_table, table_app
from bench.catch_up import check
from bench.connection import connect
from bench.workload import events
from holdfast.kafka import KafkaSource
from tests.support.kafka import KafkaBroker, create_topic


def cases(scale: Scale) -> list[Case]:
    return [
        _case(name, database, load, run, scale.events)
        for database in (Database.POSTGRES, Database.SQLITE)
        for name, load, run in (
            ("journal", journal.load, catch_up_table),
            ("topic", partial(load_topic, partitions=1), catch_up_topic),
            ("topic-of-4", partial(load_topic, partitions=4), catch_up_topic),
        )
    ]


def load_topic(url: str, count: int, *, partitions: int) -> None:
    """Fills a new topic with W1, and notes in the database where it is."""
    journal.load(url, 0)
    broker = _broker()
    topic = create_topic(broker.bootstrap, partitions=partitions)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 20}
    )
    for event in events(count):
        headers = [
            ("holdfast-type", event.type.encode()),
            ("holdfast-version", str(event.version).encode()),
            ("holdfast-id", str(event.id).encode()),
            ("holdfast-recorded-at", event.recorded_at.isoformat().encode()),
        ]
        _produce(producer, topic, event.stream, event.json(), headers)
    producer.flush()
    with closing(connect(url)) as connection:
        connection.execute("CREATE TABLE bench_topic (bootstrap text, name text)")
        connection.execute(f"INSERT INTO bench_topic VALUES ('{broker.bootstrap}', '{topic}')")
        connection.commit()


def catch_up_topic(url: str, *, events: int) -> Sample:
    with closing(connect(url)) as connection:
        bootstrap, topic = connection.execute("SELECT * FROM bench_topic").fetchone() or ()
    source = KafkaSource(topic, bootstrap=bootstrap, group="bench")
    return catch_up(table_app(url, source=source), events)


def _case(name: str, database: Database, load: Any, run: Any, events: int) -> Case:
    return Case(
        name=f"kafka/{database}/{name}",
        database=database,
        loaded_events=events,
        load=load,
        run=partial(run, events=events),
        check=check,
    )


def _produce(producer: Producer, topic: str, key: str, value: str, headers: Any) -> None:
    while True:
        try:
            producer.produce(topic, key=key, value=value, headers=headers)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(1)


@cache
def _broker() -> KafkaBroker:
    """One for the whole run; it ends with this process."""
    broker = KafkaBroker()
    broker.start()
    return broker
