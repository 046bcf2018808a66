"""A small bank: one journal, three read models."""

import os
from dataclasses import dataclass
from datetime import date

from holdfast import App, Event, Projection, TableProjection, Tx, on

URL = os.environ.get("BANK_URL", "sqlite:///bank.db")
INSERT = "INSERT INTO ledger (event_id, account, amount) VALUES ({0}, {0}, {0})".format(
    "?" if URL.startswith("sqlite") else "%s"
)

app = App(URL)


@dataclass
class Opened:
    owner: str
    day: date
    amount: int = 0


@dataclass
class Deposited:
    amount: int
    day: date


@dataclass
class Withdrawn:
    amount: int
    day: date


@dataclass
class Balance:
    account: str
    owner: str = ""
    amount: int = 0
    bookings: int = 0


@app.projection
class Balances(TableProjection[Balance]):
    """Each account's balance: a row for each stream."""

    @on(Opened)
    def opened(self, row: Balance, event: Event[Opened]) -> None:
        row.owner = event.data.owner

    @on(Deposited)
    def deposited(self, row: Balance, event: Event[Deposited]) -> None:
        row.amount += event.data.amount
        row.bookings += 1

    @on(Withdrawn)
    def withdrawn(self, row: Balance, event: Event[Withdrawn]) -> None:
        row.amount -= event.data.amount
        row.bookings += 1


@dataclass
class DailyTotal:
    day: date
    kind: str
    events: int = 0
    amount: int = 0


@app.projection
class DailyTotals(TableProjection[DailyTotal]):
    """Totals of each day, by kind of event: a few rows for all accounts."""

    key_fields = ("day", "kind")

    def key(self, event: Event[Opened | Deposited | Withdrawn]) -> tuple[date, str]:
        return event.data.day, event.type

    @on(Opened, Deposited, Withdrawn)
    def booked(self, row: DailyTotal, event: Event[Opened | Deposited | Withdrawn]) -> None:
        row.events += 1
        row.amount += event.data.amount


@app.projection
class Ledger(Projection):
    """A row for each booking. The table has no unique key that would hide a second one."""

    tables = {  # noqa: RUF012
        "ledger": "CREATE TABLE ledger (event_id text NOT NULL, account text, amount bigint)"
    }

    @on(Deposited)
    def deposited(self, event: Event[Deposited], tx: Tx) -> None:
        tx.execute(INSERT, (str(event.id), event.stream, event.data.amount))

    @on(Withdrawn)
    def withdrawn(self, event: Event[Withdrawn], tx: Tx) -> None:
        tx.execute(INSERT, (str(event.id), event.stream, -event.data.amount))
