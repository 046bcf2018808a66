"""Accounts on a topic: what the tests of Kafka produce and project."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from holdfast import App, TableProjection, on
from holdfast.kafka import KafkaSource

WAIT_SECONDS = 30.0
"""Long enough for any machine; reached only by a failing test."""


@dataclass
class Credited:
    """Money came in."""

    amount: int
    currency: str = "EUR"


@dataclass
class Balance:
    """An account."""

    account: str
    amount: int = 0
    events: int = 0


class Unsupported(ValueError):
    """What a handler refuses."""


class Balances(TableProjection[Balance]):
    """Each account's balance, in euros."""

    @on(Credited)
    def credited(self, row: Balance, event: Any) -> None:
        if event.data.currency != "EUR":
            raise Unsupported(event.data.currency)
        row.amount += event.data.amount
        row.events += 1


class Topic:
    """A topic that accounts are written to."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3})
        self._failed: list[Any] = []

    def credit(
        self, account: str, version: int, amount: int = 1, *, partition: int = -1, **data: Any
    ) -> None:
        """Writes one event, in our own envelope."""
        pairs = "".join(f', "{name}": "{value}"' for name, value in data.items())
        self.put(
            account,
            f'{{"amount": {amount}{pairs}}}'.encode(),
            headers(version),
            partition=partition,
        )

    def put(
        self,
        key: str | bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, str | bytes | None]] = (),
        *,
        partition: int = -1,
    ) -> None:
        """Writes one record, whatever is in it."""
        self._producer.produce(
            self.name,
            key=key,
            value=value,
            headers=list(headers),
            partition=partition,
            on_delivery=self._delivered,
        )

    def flush(self) -> None:
        """Returns when everything is there."""
        assert self._producer.flush(WAIT_SECONDS) == 0
        assert not self._failed

    def source(self, **settings: Any) -> KafkaSource:
        """The topic as a projection's source."""
        return KafkaSource(
            self.name, bootstrap=self.bootstrap, **{"group": f"of-{self.name}", **settings}
        )

    def _delivered(self, error: Any, _: Message) -> None:
        if error is not None:
            self._failed.append(error)


def headers(version: int | None, type_name: str = "Credited") -> list[tuple[str, bytes]]:
    """The headers of our own envelope."""
    found = [("holdfast-type", type_name.encode()), ("holdfast-id", str(uuid4()).encode())]
    return found if version is None else [*found, ("holdfast-version", str(version).encode())]


def register(app: App, source: KafkaSource, **settings: Any) -> App:
    """The app with its balances from a topic."""

    class Balances_(Balances):
        pass

    app.projection(name="balances", source=source, **settings)(Balances_)
    return app


def balances(app: App) -> dict[str, int]:
    """What the table says."""
    return {account: amount for account, amount, *_ in rows(app, "balances")}


def rows(app: App, table: str) -> list[tuple[Any, ...]]:
    """A table's rows, by their first column."""
    with app._database.reading() as connection:
        found = connection.tx.fetch(f'SELECT * FROM "{table}"')
    return sorted(found, key=lambda row: str(row[0]))


def read_topic(bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
    """All that a topic has now, partition by partition."""
    with _consumer(bootstrap) as consumer:
        found: list[Message] = []
        for number in range(partitions):
            place = TopicPartition(topic, number, 0)
            _, high = consumer.get_watermark_offsets(place, timeout=WAIT_SECONDS)
            consumer.assign([place])
            while high and (not found or found[-1].partition() != number or _next(found) < high):
                message = consumer.poll(WAIT_SECONDS)
                assert message is not None
                assert message.error() is None, message.error()
                found.append(message)
        return found


def _next(found: list[Message]) -> int:
    offset = found[-1].offset()
    assert offset is not None
    return offset + 1


@contextmanager
def _consumer(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "log_level": 3})
    try:
        yield consumer
    finally:
        consumer.close()


Make = Callable[..., str]
"""The fixture `kafka_topic`."""
