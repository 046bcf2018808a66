"""The story of a bug, told through the command line: events fail and are parked, an operator finds
the cause, the handler is fixed, and the lanes are drained in order while new events keep coming."""

import json
import random
import threading
from contextlib import suppress
from typing import Any
from uuid import uuid4

from holdfast import App, NewEvent
from tests.support.command import Place, database_contents
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0
ACCOUNTS = 8

SHOP = """
import os
from dataclasses import dataclass
from typing import ClassVar

from holdfast import App, Park, Policy, Projection, TableProjection, on

URL = os.environ["BANK_URL"]
MARK = "?" if URL.startswith("sqlite") else "%s"
RATES = {"EUR": 1, "USD": 2}
app = App(URL)

@dataclass
class Credited:
    amount: int
    currency: str

@dataclass
class Balance:
    account: str
    amount: int = 0
    amounts: str = ""

@app.projection(policy=Policy(on_error=Park()))
class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row, event):
        row.amount += event.data.amount * RATES[event.data.currency]
        row.amounts += f"{event.data.amount} "

@app.projection(policy=Policy(on_error=Park()))
class Ledger(Projection):
    tables: ClassVar = {"ledger": "CREATE TABLE ledger (account text, n bigint, amount bigint)"}

    @on(Credited)
    def credited(self, event, tx):
        amount = event.data.amount * RATES[event.data.currency]
        sql = f"INSERT INTO ledger VALUES ({MARK}, {MARK}, {MARK})"
        tx.execute(sql, (event.stream, event.version, amount))
"""


class Customers:
    """Append until they are stopped; the amounts of each account count up from 1."""

    def __init__(self, url: str) -> None:
        self._app = App(url)
        self._stop = threading.Event()
        self._random = random.Random(7)
        self.amounts: dict[str, list[tuple[int, str]]] = {}
        self.position = 0
        self._thread = threading.Thread(target=self._go_on)

    def buy(self, account: str, currency: str) -> None:
        known = self.amounts.setdefault(account, [])
        known.append((len(known) + 1, currency))
        data = {"amount": known[-1][0], "currency": currency}
        event = NewEvent(data, type="Credited", id=uuid4())
        self.position = self._app.journal.append(account, [event]).position

    def _go_on(self) -> None:
        while not self._stop.wait(0.01):
            self.buy(f"account-{self._random.randrange(ACCOUNTS)}", "EUR")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        with suppress(RuntimeError):
            self._thread.join(WAIT_SECONDS)
        self._app.close()


def queued(place: Place, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = place.ok(
        "queue", "list", "bank:app", "--json", "--limit", "10000", *arguments
    ).json["items"]
    return found


def test_a_bug_is_found_and_fixed_and_leaves_no_trace(any_place: Place) -> None:
    place = any_place
    path = place.write("bank.py", SHOP)
    customers = Customers(place.url)
    try:
        # The bug: an unknown currency.
        for number in range(ACCOUNTS):
            customers.buy(f"account-{number}", "EUR")
        customers.buy("account-1", "CHF")
        customers.buy("account-2", "CHF")
        customers.buy("account-2", "EUR")
        worker = place.work()
        customers.start()
        wait_until(lambda: len(queued(place)) >= 8, WAIT_SECONDS, "lanes to fill")

        # What an operator sees.
        status = place.statuses()["ledger"]
        assert (status["state"], status["closed_lanes"]) == ("running", 2)
        dead = queued(place, "--status", "dead")
        assert {(i["projection"], i["lane"], i["error_type"]) for i in dead} == {
            (projection, lane, "KeyError")
            for projection in ("balances", "ledger")
            for lane in ("account-1", "account-2")
        }
        shown = place.ok("queue", "show", "bank:app", str(dead[0]["id"])).out
        assert "KeyError: 'CHF'" in shown
        assert '"currency": "CHF"' in shown
        assert "RATES[event.data.currency]" in shown
        explained = place.ok("explain", "bank:app", "ledger").out
        assert "2 lanes are closed" in explained
        assert "holdfast queue requeue" in explained

        # The handler is fixed, the worker restarted. Nothing is tried before it is requeued.
        path.write_text(SHOP.replace('"USD": 2', '"USD": 2, "CHF": 3'))
        worker.close()
        worker = place.work()
        assert len(queued(place, "--status", "dead")) == 4

        # One lane first, to check the fix; then the rest.
        one = place.ok(
            "queue", "requeue", "bank:app", "--lane", "account-1", "--yes", "--json"
        ).json
        assert len(one["items"]) == 2
        wait_until(
            lambda: not queued(place, "--lane", "account-1"),
            WAIT_SECONDS,
            "account-1 to be drained",
        )
        assert len(queued(place, "--status", "dead")) == 2
        place.ok(
            "queue", "requeue", "bank:app", "--error-type", "KeyError", "--note", "CHF", "--yes"
        )
        wait_until(lambda: not queued(place), WAIT_SECONDS, "the queue to be empty")
    finally:
        customers.stop()
    place.wait_for(customers.position)
    assert queued(place) == []
    worker.close()
    check(place, customers.amounts)
    audit = place.ok("audit", "bank:app", "--json").json["changes"]
    assert [change["action"] for change in audit] == ["requeue"] * 4


def check(place: Place, amounts: dict[str, list[tuple[int, str]]]) -> None:
    """Every row is what the events say, each applied once and in order."""
    rates = {"EUR": 1, "CHF": 3}
    found = database_contents(place.url)
    balances = {row[0]: (row[1], row[2]) for row in found["balances"]}
    assert balances == {
        account: (
            sum(n * rates[currency] for n, currency in known),
            "".join(f"{n} " for n, _ in known),
        )
        for account, known in amounts.items()
    }
    assert sorted(found["ledger"]) == sorted(
        (account, n, n * rates[currency])
        for account, known in amounts.items()
        for n, currency in known
    ), json.dumps(amounts)
