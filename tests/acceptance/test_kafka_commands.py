"""A topic with a gap, a broken payload and an unknown currency, which an operator deals with."""

import signal
from typing import Any

import pytest

from holdfast import App
from tests.support import bank_topic
from tests.support.bank_topic import Make, Topic, headers
from tests.support.command import Command, Place
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0

MODULE = """
import os
from dataclasses import dataclass
from holdfast import App, TableProjection, on
from holdfast.kafka import KafkaSource

app = App(os.environ["BANK_URL"])
accounts = KafkaSource(
    "{topic}",
    bootstrap="{bootstrap}",
    group="of-{topic}",
    gap_seconds=0.1,
    dead_letters="{letters}",
    settings={{"sasl.username": "bank", "sasl.password": "hunter2-very-secret"}},
)

@dataclass
class Credited:
    amount: int
    currency: str = "EUR"

@dataclass
class Balance:
    account: str
    amount: int = 0

@app.projection(source=accounts)
class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row, event):
        if event.data.currency not in {currencies!r}:
            raise ValueError(f"currency {{event.data.currency}}")
        row.amount += event.data.amount
"""


@pytest.fixture
def topic(kafka_broker: str, kafka_topic: Make) -> Topic:
    return Topic(kafka_broker, kafka_topic(partitions=2))


def write(place: Place, topic: Topic, letters: str, *currencies: str) -> None:
    text = MODULE.format(
        topic=topic.name, bootstrap=topic.bootstrap, letters=letters, currencies=currencies
    )
    place.write("bank.py", text)


def balances(place: Place) -> dict[str, Any]:
    with App(place.url) as app:
        return bank_topic.balances(app)


def test_the_story_of_a_topic(any_place: Place, topic: Topic, kafka_topic: Make) -> None:
    place, letters = any_place, kafka_topic()
    write(place, topic, letters, "EUR")
    for version in (1, 2, 3):
        topic.credit("well", version)
    topic.credit("gap", 1)
    topic.credit("gap", 3)
    topic.put("broken", b"{", headers(1))
    topic.credit("broken", 2)
    topic.credit("money", 1, currency="XXX")
    topic.credit("money", 2)
    topic.flush()
    worker = place.work()
    wait_until(lambda: len(dead(place)) == 3, WAIT_SECONDS, "three dead events")
    wait_until(lambda: balances(place) == {"well": 3, "gap": 1}, WAIT_SECONDS, "the others")

    status = place.ok("status", "bank:app", "--json").json["projections"]
    mine = {s["feed"]: s for s in status if s["projection"] == "balances"}
    assert sorted(mine) == [f"{topic.name}[0]", f"{topic.name}[1]"]
    assert {s["state"] for s in mine.values()} == {"running"}
    assert "hunter2" not in place.ok("status", "bank:app").out
    assert f"{topic.name}[0]" in place.ok("status", "bank:app").out
    reasons = place.ok("explain", "bank:app", "balances", "--json").json["reasons"]
    assert "lanes_closed" in {reason["kind"] for reason in reasons}

    # The gap: the missing version is lost.
    (gap,) = dead(place, "gap")
    assert gap["error_type"] == "VersionGap"
    place.ok("queue", "requeue", "bank:app", str(gap["id"]), "--accept-gap", "--yes")
    wait_until(lambda: balances(place).get("gap") == 2, WAIT_SECONDS, "the gap to be passed")

    # The broken payload: an operator resolves it, and accepts the gap that it leaves.
    (broken,) = dead(place, "broken")
    place.ok("queue", "resolve", "bank:app", str(broken["id"]), "--note", "by hand", "--yes")
    wait_until(lambda: bool(dead(place, "broken")), WAIT_SECONDS, "the next one to miss it")
    (missing,) = dead(place, "broken")
    place.ok("queue", "requeue", "bank:app", str(missing["id"]), "--accept-gap", "--yes")
    wait_until(lambda: balances(place).get("broken") == 1, WAIT_SECONDS, "the one behind it")

    # The currency: the code is fixed, and the events that wait are applied in order.
    stop(worker)
    write(place, topic, letters, "EUR", "XXX")
    place.ok("queue", "requeue", "bank:app", "--lane", "money", "--yes")
    worker = place.work()
    wait_until(lambda: balances(place).get("money") == 2, WAIT_SECONDS, "the money")
    assert [(item["lane"], item["status"]) for item in items(place)] == [("broken", "resolved")]
    stop(worker)
    assert "hunter2" not in worker.out + worker.err


def stop(worker: Command) -> None:
    assert worker.send(signal.SIGTERM).wait() == 0


def dead(place: Place, lane: str | None = None) -> list[dict[str, Any]]:
    mine = [item for item in items(place) if item["status"] == "dead"]
    return [item for item in mine if lane in (None, item["lane"])]


def items(place: Place) -> list[dict[str, Any]]:
    done = place.ok("queue", "list", "bank:app", "--projection", "balances", "--json")
    listed: list[dict[str, Any]] = done.json["items"]
    return listed


def test_letters_are_imported_by_a_command(place: Place, topic: Topic, kafka_topic: Make) -> None:
    letters = Topic(topic.bootstrap, kafka_topic())
    write(place, topic, kafka_topic(), "EUR")
    letters.credit("a", 1, amount=5)
    letters.flush()
    command = ("queue", "import", "bank:app", "balances", "--topic", letters.name)
    preview = place.ok(*command, "--dry-run", "--json").json
    assert (preview["added"], preview["dry_run"]) == (1, True)
    assert "put 1 event into the queue" in place.ok(*command, "--yes").out
    worker: Command = place.work()
    wait_until(lambda: items(place) == [], WAIT_SECONDS, "the imported event")
    assert balances(place) == {"a": 5}
    stop(worker)
    assert "put 0 events" in place.ok(*command, "--yes").out
