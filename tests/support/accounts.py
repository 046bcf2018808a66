"""Accounts whose events are on Kafka: what each event is, and what must come of all of them.

Nothing about an event is random: whoever knows its account and its version knows the rest. So a
producer that was killed can go on, and a check needs no list of what was produced.

The projections are not idempotent. A balance is added to, and the log has no unique key, so an
event that is lost, applied twice or out of order stays visible in the tables.
"""

import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid5

import msgspec

from holdfast import App, Event, Policy, Poll, Projection, TableProjection, Tx, on
from holdfast.kafka import KafkaSource

IDS = UUID("5e6f7a10-94a5-5d0e-a1c4-5a1f0f3d2b77")
PROJECTIONS = ("balances", "log")


@dataclass
class FundsCredited:
    """`hold` names a file: the log's handler stays in its transaction while the file exists.

    `fold` does the same where balances are added to, in no transaction. If the file names any
    processes, only those stay. `fail` names a file too: the log's handler finds no connection to
    somewhere while it exists.
    """

    amount: int
    hold: str = ""
    fold: str = ""
    fail: str = ""


@dataclass
class FundsDebited:
    """The same the other way."""

    amount: int
    hold: str = ""
    fold: str = ""
    fail: str = ""


@dataclass
class Balance:
    account: str
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One event as Kafka's client takes it."""

    key: str
    value: bytes
    headers: dict[str, str | bytes | None]


def account(number: int) -> str:
    return f"account-{number}"


def amount(stream: str, version: int) -> int:
    """What an event adds to the balance; below zero it is debited."""
    number = zlib.crc32(f"{stream}/{version}".encode())
    size = number % 1_000 + 1
    return -size if number >> 16 & 3 == 0 else size


def record(stream: str, version: int, **settings: str) -> Record:
    """The event of an account at a version; the settings say what its handler meets."""
    change = amount(stream, version)
    event = (FundsDebited if change < 0 else FundsCredited)(abs(change), **settings)
    headers: dict[str, str | bytes | None] = {
        "holdfast-type": type(event).__name__,
        "holdfast-version": str(version),
        "holdfast-id": str(uuid5(IDS, f"{stream}/{version}")),
    }
    return Record(stream, msgspec.json.encode(event), headers)


def balance(stream: str, version: int) -> int:
    """What an account holds when it has come to a version."""
    return sum(amount(stream, number) for number in range(1, version + 1))


@dataclass(frozen=True, slots=True)
class History:
    """So many events over so many accounts, which take turns."""

    events: int
    accounts: int

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Each event's account and version, in the order in which they are produced."""
        for number in range(self.events):
            yield account(number % self.accounts), number // self.accounts + 1

    def versions(self) -> dict[str, int]:
        """Each account's last version."""
        return dict(self)


def group_of(topic: str) -> str:
    """Of this topic's consumers alone: other tests have theirs on the same broker."""
    return f"of-{topic}"


def build_accounts_app(
    url: str,
    *,
    bootstrap: str,
    topic: str,
    settings: Mapping[str, Any] | None = None,
    start: Any = "earliest",
    first_version: int | None = 1,
    poll: Poll | None = None,
    policy: Policy | None = None,
    slow_seconds: float = 0.0,
    on_handling: Callable[[Event[Any]], None] = lambda _: None,
) -> App:
    """Each account's balance, and a log with a line for each event.

    `slow_seconds` is spent inside the log's transaction at every third event, and `on_handling` is
    called there, before the first write.
    """
    app = App(url)
    is_sqlite = url.startswith("sqlite")
    mark = "?" if is_sqlite else "%s"
    entry = (
        "INTEGER PRIMARY KEY AUTOINCREMENT" if is_sqlite else "bigint GENERATED ALWAYS AS IDENTITY"
    )
    source = KafkaSource(
        topic,
        bootstrap=bootstrap,
        group=group_of(topic),
        start=start,
        first_version=first_version,
        settings=settings,
    )

    @app.projection(source=source, poll=poll, policy=policy)
    class Balances(TableProjection[Balance]):
        """Folded in memory, written in bulk."""

        @on(FundsCredited)
        def credited(self, row: Balance, event: Event[FundsCredited]) -> None:
            stay(event.data.fold)
            row.amount += event.data.amount

        @on(FundsDebited)
        def debited(self, row: Balance, event: Event[FundsDebited]) -> None:
            stay(event.data.fold)
            row.amount -= event.data.amount

    @app.projection(source=source, poll=poll, policy=policy)
    class Log(Projection):
        """A line for each event, and by which process; and how many lines an account has."""

        tables: ClassVar = {
            "log": "CREATE TABLE log"
            f" (entry {entry}, stream text, version bigint, amount bigint, process bigint)",
            "log_count": "CREATE TABLE log_count (stream text PRIMARY KEY, n bigint)",
        }

        @on(FundsCredited)
        def credited(self, event: Event[FundsCredited], tx: Tx) -> None:
            self._add(event, event.data.amount, tx)

        @on(FundsDebited)
        def debited(self, event: Event[FundsDebited], tx: Tx) -> None:
            self._add(event, -event.data.amount, tx)

        def _add(self, event: Event[Any], change: int, tx: Tx) -> None:
            on_handling(event)
            tx.execute(
                "INSERT INTO log (stream, version, amount, process)"
                f" VALUES ({mark}, {mark}, {mark}, {mark})",
                (event.stream, event.version, change, os.getpid()),
            )
            increment = f"UPDATE log_count SET n = n + 1 WHERE stream = {mark}"
            if not tx.execute(increment, (event.stream,)):
                tx.execute(f"INSERT INTO log_count VALUES ({mark}, 1)", (event.stream,))
            if slow_seconds and event.position % 3 == 0:
                time.sleep(slow_seconds)
            stay(event.data.hold)
            if event.data.fail and Path(event.data.fail).exists():
                reached(Path(event.data.fail), os.getpid()).touch()
                raise ConnectionError("the bank is away")

    return app


def stay(path: str) -> None:
    """Says that this process is here, and returns when the file is gone, or meant for others."""
    hold = Path(path)
    while path and (names := held_by(hold)) is not None and (not names or os.getpid() in names):
        reached(hold, os.getpid()).touch()
        time.sleep(0.005)


def held_by(hold: Path) -> set[int] | None:
    """The processes that a file names; None if it is not there."""
    try:
        return {int(name) for name in hold.read_text().split()}
    except FileNotFoundError:
        return None


def reached(hold: Path, process: int) -> Path:
    """The file that says that a process has come to where it is held."""
    return hold.with_name(f"{hold.name}.{process}")
