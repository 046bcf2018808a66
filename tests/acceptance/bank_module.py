"""The app of the acceptance tests. Each test has a copy of it as `bank.py` in its own folder."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast import App, Event, Projection, TableProjection, Tx, on

URL = os.environ["BANK_URL"]
MARK = "?" if URL.startswith("sqlite") else "%s"

app = App(URL)


@dataclass
class Credited:
    amount: int


@dataclass
class Waited:
    """The ledger's handler does not return while this file exists."""

    file: str


@dataclass
class Balance:
    account: str
    amount: int = 0


@app.projection
class Balances(TableProjection[Balance]):
    @on(Credited)
    def credited(self, row: Balance, event: Event[Credited]) -> None:
        row.amount += event.data.amount


@app.projection
class Ledger(Projection):
    tables: ClassVar = {"ledger": "CREATE TABLE ledger (account text, amount bigint)"}

    @on(Credited)
    def credited(self, event: Event[Credited], tx: Tx) -> None:
        if event.data.amount < 0:
            raise ValueError("a credit can't be negative\nit must be positive")
        tx.execute(f"INSERT INTO ledger VALUES ({MARK}, {MARK})", (event.stream, event.data.amount))

    @on(Waited)
    def waited(self, event: Event[Waited], tx: Tx) -> None:
        Path(event.data.file + ".reached").touch()
        while Path(event.data.file).exists():
            time.sleep(0.01)
