"""Accounts on a Kafka topic become balances in a table.

    pip install "holdfast[kafka]"
    cd examples
    export KAFKA_BOOTSTRAP=localhost:9092
    python bank_from_kafka.py produce     # makes the topics, and writes sample events
    holdfast run bank_from_kafka:app      # in as many processes as you like; Ctrl-C ends it
    sqlite3 bank.db 'SELECT * FROM balances'

Some records are written twice, and to run `produce` again writes all of them again: the balances
stay what they are. One event of account-3 is in a currency that nobody knows. The account waits
from there on, the others go on, and the event is in the dead-letter topic as well:

    holdfast explain bank_from_kafka:app balances

Add CHF to RATES, start the worker again, and let the account go on:

    holdfast queue requeue bank_from_kafka:app --lane account-3

DATABASE_URL names another database, KAFKA_TOPIC and KAFKA_DEAD_LETTERS other topics. KAFKA_SETTINGS
is JSON for the client, such as {"security.protocol": "SASL_SSL", …}.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from holdfast import App, Event, TableProjection, on
from holdfast.kafka import Json, KafkaSource

BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("KAFKA_TOPIC", "accounts")
DEAD_LETTERS = os.environ.get("KAFKA_DEAD_LETTERS", f"{TOPIC}-dead")
SETTINGS: dict[str, Any] = json.loads(os.environ.get("KAFKA_SETTINGS", "{}"))

RATES = {"EUR": 100, "USD": 92}
"""What one of a currency is worth, in cents of a euro."""

app = App(os.environ.get("DATABASE_URL", "sqlite:///bank.db"))

source = KafkaSource(
    TOPIC,
    bootstrap=BOOTSTRAP,
    group="bank",
    decode=Json(),
    dead_letters=DEAD_LETTERS,
    settings=SETTINGS,
)


@dataclass
class AccountOpened:
    """An account is there."""

    owner: str


@dataclass
class FundsCredited:
    """Money came in."""

    amount: int
    currency: str


@dataclass
class Balance:
    """A row: what is on an account."""

    account: str  # the key: the event's stream, here the record's key
    owner: str = ""
    cents: int = 0


@app.projection(source=source)
class Balances(TableProjection[Balance]):
    """Every account's balance."""

    @on(AccountOpened)
    def opened(self, row: Balance, event: Event[AccountOpened]) -> None:
        row.owner = event.data.owner

    @on(FundsCredited)
    def credited(self, row: Balance, event: Event[FundsCredited]) -> None:
        row.cents += event.data.amount * RATES[event.data.currency]


def produce() -> None:
    """Writes sample events; returns when the brokers have all of them."""
    make_topics()
    producer = Producer({**SETTINGS, "bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    count = 0
    for account, event in samples():
        producer.produce(TOPIC, json.dumps(event), account, on_delivery=delivered)
        count += 1
    if producer.flush(60) or failed:
        raise SystemExit(f"not all records could be written: {failed}")
    print(f"wrote {count} records to {TOPIC}")


def samples() -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of ten accounts: the key of each record, and its value."""
    for version in range(1, 11):
        for number in range(1, 11):
            account = f"account-{number}"
            event: dict[str, Any] = {"id": f"{account}/{version}", "version": version}
            if version == 1:
                event |= {"type": "AccountOpened", "data": {"owner": f"owner {number}"}}
            else:
                currency = "CHF" if (number, version) == (3, 6) else "EUR"
                data = {"amount": number, "currency": currency}
                event |= {"type": "FundsCredited", "data": data}
            for _ in range(2 if version % 5 == 0 else 1):
                yield account, event


def make_topics() -> None:
    """Makes the topics, unless they are there."""
    admin = AdminClient({**SETTINGS, "bootstrap.servers": BOOTSTRAP})
    wanted = [NewTopic(TOPIC, 3), NewTopic(DEAD_LETTERS, 1)]
    for future in admin.create_topics(wanted).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Sample events for the bank.")
    parser.add_argument("command", choices=["produce"])
    parser.parse_args()
    produce()
