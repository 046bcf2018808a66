"""Threads that append events to the bank's journal."""

from __future__ import annotations

import random
import threading
import time
from datetime import date, timedelta
from typing import Any

from holdfast.cli.demo import bank

THREADS = 4
ACCOUNTS = 100
DAYS = 7
FIRST_DAY = date(2026, 1, 5)
SEED = 17


class Writers:
    """Appends `events` events in about `seconds`, from several threads at once."""

    def __init__(self, events: int, *, seconds: float) -> None:
        self.wanted = events
        self.appended = 0
        self.error: Exception | None = None
        self._rate = events / seconds
        self._began = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(THREADS)
        ]

    def open_accounts(self) -> None:
        """Appends each account's first event."""
        for number in range(ACCOUNTS):
            opened = bank.Opened(owner=f"Customer {number}", day=FIRST_DAY)
            bank.app.journal.append(f"account-{number:03}", [opened], expected_version=0)
        self.appended += ACCOUNTS

    def start(self) -> None:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads, each after its present append."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    @property
    def is_done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, number: int) -> None:
        dice = random.Random(SEED + number)
        try:
            while not self._stop.is_set() and self.appended < self.wanted:
                account = f"account-{dice.randrange(ACCOUNTS):03}"
                events = [_booking(dice) for _ in range(dice.randint(1, 4))]
                bank.app.journal.append(account, events)
                with self._lock:
                    self.appended += len(events)
                    early = self.appended / self._rate - (time.monotonic() - self._began)
                self._stop.wait(max(0.0, early))
        except Exception as error:  # The main thread raises it.
            self.error = error


def _booking(dice: random.Random) -> Any:
    amount, day = dice.randint(1, 500), FIRST_DAY + timedelta(days=dice.randrange(DAYS))
    kind = bank.Deposited if dice.random() < 0.6 else bank.Withdrawn
    return kind(amount=amount, day=day)
