"""Many writers at once, slow and fickle: no reader loses, doubles or swaps an event, or stalls.

The last test takes the protection away and sees events lost, so the first can't pass by luck.
"""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from holdfast import App
from tests.support.postgres import wait_until
from tests.world.app import Moved, build_app
from tests.world.checks import check_all
from tests.world.progress import await_arrival, read_progress

WRITERS = 16
TRANSACTIONS = 30
"""Of each writer, at least: they go on until the readers have passed what was there half-way."""

WAIT_SECONDS = 600.0


def test_many_writers(postgres_url: str) -> None:
    outcome = stress(postgres_url, transactions=TRANSACTIONS)
    print(outcome)

    check_all(postgres_url, complete=True)
    assert outcome.tailed == outcome.journal
    assert {position for position, _, _ in outcome.journal} == outcome.acknowledged
    assert outcome.in_order()
    assert outcome.holes > 0


@pytest.mark.soak
def test_many_writers_for_long(postgres_url: str) -> None:
    outcome = stress(postgres_url, transactions=500)
    print(outcome)

    check_all(postgres_url, complete=True)
    assert outcome.tailed == outcome.journal
    assert {position for position, _, _ in outcome.journal} == outcome.acknowledged


def test_many_writers_without_protection_lose_events(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection, build_app(postgres_url) as app:
        app.migrate()
        remove_protection(connection)
    outcome = stress(postgres_url, transactions=3 * TRANSACTIONS)
    print(outcome)

    assert {position for position, _, _ in outcome.journal} == outcome.acknowledged
    assert len(outcome.tailed) < len(outcome.journal)
    with pytest.raises(AssertionError):
        check_all(postgres_url, complete=True)


@dataclass
class Outcome:
    """Events are (position, stream, version)."""

    acknowledged: set[int] = field(default_factory=set)
    tailed: list[tuple[int, str, int]] = field(default_factory=list)
    journal: list[tuple[int, str, int]] = field(default_factory=list)
    rolled_back: int = 0

    @property
    def holes(self) -> int:
        return self.journal[-1][0] - len(self.journal)

    def in_order(self) -> bool:
        """Whether the tail came in the order of versions within every stream."""
        last: Counter[str] = Counter()
        for _, stream, version in self.tailed:
            if version != last[stream] + 1:
                return False
            last[stream] = version
        return True

    def __str__(self) -> str:
        return (
            f"{len(self.journal)} events, {self.rolled_back} transactions rolled back, "
            f"{self.holes} positions never used; {len(self.tailed)} events seen by the tail"
        )


def stress(url: str, *, transactions: int) -> Outcome:
    """Writers, two projections and a tail at once; returns when all have come to rest."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    outcome = Outcome()
    crowd = Crowd(url, outcome, seed=seed, transactions=transactions)
    with build_app(url) as app, psycopg.connect(url) as stranger:
        app.migrate()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE business (n int)")
        stranger.execute("INSERT INTO business VALUES (0)")  # Open to the end.
        with app.running(), tailing(app, outcome):
            with crowd.writing(app):
                crowd.wait_until_half_way()
                drawn = read_progress(url).head
                # A reader that waits for all writers to rest, or for the stranger, never arrives.
                wait_until(
                    lambda: read_progress(url).behind >= drawn and is_tailed(outcome, drawn),
                    WAIT_SECONDS,
                    "the readers to pass what was there while writers go on",
                )
            await_arrival(url, WAIT_SECONDS)
            head = read_progress(url).head
            wait_until(lambda: is_tailed(outcome, head), WAIT_SECONDS, "the tail to arrive")
        assert stranger.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        rows = stranger.execute("SELECT position, stream, version FROM holdfast_event ORDER BY 1")
        outcome.journal = rows.fetchall()
    return outcome


def is_tailed(outcome: Outcome, position: int) -> bool:
    return bool(outcome.tailed) and outcome.tailed[-1][0] >= position


@contextmanager
def tailing(app: App, outcome: Outcome) -> Iterator[None]:
    """A second reader, beside the projections."""
    stop = threading.Event()

    def tail() -> None:
        for event in app.journal.tail(after=0, stop=stop.is_set):
            outcome.tailed.append((event.position, event.stream, event.version))

    thread = threading.Thread(target=tail)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        app.journal.wake()
        thread.join()


class RollBack(Exception):
    """Leaves a block of psycopg's `transaction()` without its effects."""


class Crowd:
    """The writers."""

    def __init__(self, url: str, outcome: Outcome, *, seed: int, transactions: int) -> None:
        self._url, self._outcome = url, outcome
        self._seed, self._transactions = seed, transactions
        self._lock = threading.Lock()
        self._done = 0
        self._may_end = threading.Event()
        self._errors: list[BaseException] = []

    @contextmanager
    def writing(self, app: App) -> Iterator[None]:
        """Writers write while the block runs, and for their number of transactions at least."""
        threads = [threading.Thread(target=self._write, args=(app, k)) for k in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._may_end.set()
            for thread in threads:
                thread.join()
        assert not self._errors, self._errors

    def wait_until_half_way(self) -> None:
        half = WRITERS * self._transactions // 2
        wait_until(lambda: self._done >= half or bool(self._errors), 600, "half of the writing")

    def _write(self, app: App, k: int) -> None:
        try:
            chance = random.Random(self._seed + k)
            with psycopg.connect(self._url) as connection:
                if k % 4 == 0:
                    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                n = 0
                while n < self._transactions or not self._may_end.is_set():
                    n += 1
                    self._transact(app, connection, chance, own=f"own-{k}-{n}")
                    if n > self._transactions:
                        time.sleep(0.05)  # The readers share the machine, and should catch up.
        except BaseException as error:
            self._errors.append(error)

    def _transact(
        self,
        app: App,
        connection: psycopg.Connection[tuple[Any, ...]],
        chance: random.Random,
        *,
        own: str,
    ) -> None:
        """One transaction. Only a shared stream can be waited for, and it comes first."""

        def append(stream: str) -> tuple[int, ...]:
            events = [Moved(1)] * chance.randint(1, 5)
            return app.journal.append(stream, events, connection=connection).positions

        shared = connection.isolation_level is None and chance.random() < 0.2
        positions: list[int] = []
        with suppress(RollBack), connection.transaction():
            if chance.random() < 0.5:
                connection.execute("INSERT INTO business VALUES (1)")
            if chance.random() < 0.1:
                with suppress(RollBack), connection.transaction():
                    append(f"{own}-undone")
                    raise RollBack
            positions += append(f"shared-{chance.randrange(20)}" if shared else own)
            if chance.random() < 0.1:
                time.sleep(chance.uniform(0, 0.1))
            if chance.random() < 0.1:
                positions += append(f"{own}-second")
            if chance.random() < 0.05:
                time.sleep(chance.uniform(0, 0.2))
            if chance.random() < 0.1:
                self._outcome.rolled_back += 1
                positions.clear()
                raise RollBack
        with self._lock:
            self._outcome.acknowledged.update(positions)
            self._done += 1


def remove_protection(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Takes out of the append what tells readers about positions that may still appear."""
    rows = connection.execute("SELECT pg_get_functiondef('holdfast_append'::regproc)").fetchall()
    ((definition,),) = rows
    pattern = r"PERFORM\s+pg_advisory_xact_lock_shared\(.*?;"
    without, count = re.subn(pattern, "NULL;", definition, flags=re.DOTALL)
    assert count == 1
    connection.execute(without)
