"""The final check: every read model, compared with a fold over the journal by other code."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from holdfast.cli.demo import bank
from holdfast.sql.url import SqliteUrl


@dataclass(frozen=True, slots=True)
class Check:
    """One number, as expected and as found."""

    what: str
    expected: int
    found: int

    @property
    def is_right(self) -> bool:
        return self.expected == self.found


def audit(appended: int) -> list[Check]:
    """Compares all read models with the journal, and the journal with what was appended."""
    balances: Counter[str] = Counter()
    bookings: Counter[str] = Counter()
    days: Counter[tuple[str, str]] = Counter()
    ids: Counter[str] = Counter()
    events = 0
    for event in bank.app.journal.read_raw():
        data = json.loads(event.data)
        events += 1
        days[data["day"], event.type] += data["amount"]
        sign = {"Opened": 0, "Deposited": 1, "Withdrawn": -1}[event.type]
        balances[event.stream] += sign * data["amount"]
        if sign:
            bookings[event.stream] += 1
            ids[str(event.id)] += 1
    rows = {
        account: (amount, count)
        for account, amount, count in _fetch("SELECT account, amount, bookings FROM balances")
    }
    totals = {
        (str(day), kind): amount
        for day, kind, amount in _fetch("SELECT day, kind, amount FROM daily_totals")
    }
    ledger = Counter(dict(_fetch("SELECT event_id, count(*) FROM ledger GROUP BY event_id")))
    by_account = Counter(dict(_fetch("SELECT account, sum(amount) FROM ledger GROUP BY account")))
    right = sum(rows.get(a) == (balances[a], bookings[a]) for a in balances)
    return [
        Check("events in the journal, of those appended", appended, events),
        Check("accounts with a balance", len(balances), len(rows)),
        Check("balances that are right", len(balances), right),
        Check("money in all accounts", sum(balances.values()), sum(r[0] for r in rows.values())),
        Check(
            "daily totals that are right", len(days), sum(totals.get(k) == days[k] for k in days)
        ),
        Check("bookings in the ledger", len(ids), sum(ledger.values())),
        Check("bookings in the ledger twice", 0, sum(count > 1 for count in ledger.values())),
        Check("bookings missing from the ledger", 0, len(ids - ledger)),
        Check(
            "ledger sums that equal the balance",
            len(balances),
            sum(by_account[a] == balances[a] for a in balances),
        ),
    ]


def _fetch(sql: str) -> list[Any]:
    """Reads a table without holdfast."""
    url = bank.app.url
    if isinstance(url, SqliteUrl):
        with closing(sqlite3.connect(str(url.path))) as connection:
            return connection.execute(sql).fetchall()
    import psycopg

    with psycopg.connect(url.uri) as connection:
        return connection.execute(sql).fetchall()
