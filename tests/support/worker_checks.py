"""Whether the tables of worker_app.py are right, by a fold over the journal that shares no code.

Everything is read with the plain drivers in one snapshot, so it may be asked at any moment: what a
projection has written must be exactly the events up to its checkpoint, each once and in order.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar
from zlib import crc32

import psycopg

from tests.support.postgres import wait_until

T = TypeVar("T")
Query = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has found to be right."""

    events: int
    positions: dict[str, int]
    epochs: dict[str, int]


PROJECTIONS = ("ledger", "tally", "totals")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the journal and the projections have come."""

    head: int
    positions: dict[str, int]

    @property
    def behind(self) -> int:
        """The least position that a projection has reached."""
        return min(self.positions.get(name, 0) for name in PROJECTIONS)

    @property
    def backlog(self) -> int:
        return self.head - self.behind


def read_progress(url: str) -> Progress:
    """Read with the plain driver, which knows of no pool, lease or retry."""

    def read(query: Query) -> Progress:
        ((head,),) = query("SELECT coalesce(max(position), 0) FROM holdfast_event")
        rows = query(
            "SELECT projection, min(position) FROM holdfast_checkpoint GROUP BY projection"
        )
        return Progress(head, dict(rows))

    return snapshot(url, read)


def await_progress(url: str) -> None:
    """Returns when all projections have moved on from where they are."""
    before = read_progress(url).positions

    def moved_on() -> bool:
        now = read_progress(url).positions
        return all(now.get(name, 0) > before.get(name, 0) for name in PROJECTIONS)

    wait_until(moved_on, 60, f"all projections to move on from {before}")


def await_arrival(url: str, timeout_seconds: float = 60.0) -> None:
    """Returns when all projections are at the head of the journal."""
    what = f"arrival, from {read_progress(url)}"
    wait_until(lambda: read_progress(url).backlog == 0, timeout_seconds, what)


def check_rows(url: str, *, complete: bool = False) -> Checked:
    """Asserts that rows and checkpoints agree; `complete`: also that nothing is left to do."""
    return snapshot(url, lambda query: _check(query, complete=complete))


def _check(query: Query, *, complete: bool) -> Checked:
    events = [
        (position, stream, version, json.loads(data)["amount"])
        for position, stream, version, data in query(
            "SELECT position, stream, version, CAST(data AS text)"
            " FROM holdfast_event ORDER BY position"
        )
    ]
    _check_streams(events)
    layouts: dict[str, int] = dict(query("SELECT projection, shards FROM holdfast_layout"))
    checkpoints: dict[str, dict[str, tuple[int, int, int]]] = {}
    for name, feed, *checkpoint in query(
        "SELECT projection, feed, position, events_processed, epoch FROM holdfast_checkpoint"
    ):
        checkpoints.setdefault(name, {})[feed] = tuple(checkpoint)
    for name, feeds in checkpoints.items():
        shards = layouts[name]
        seen = [event for event in events if event[0] <= feeds.get(_feed(event[1], shards), [0])[0]]
        processed = sum(count for _, count, _ in feeds.values())
        assert processed == len(seen), f"{name} at {feeds} counts {processed}, not {len(seen)}"
        if complete:
            assert {p for p, *_ in feeds.values()} == {events[-1][0]}, f"{name} is at {feeds}"
            assert len(feeds) == shards
        CHECKS[name](query, seen)
    return Checked(
        events=len(events),
        positions={name: min(p for p, *_ in feeds.values()) for name, feeds in checkpoints.items()},
        epochs={name: max(e for *_, e in feeds.values()) for name, feeds in checkpoints.items()},
    )


def _feed(stream: str, shards: int) -> str:
    """The feed to which a stream belongs."""
    return "journal" if shards == 1 else f"journal[{crc32(stream.encode()) % shards + 1}/{shards}]"


def _check_streams(events: Sequence[tuple[int, str, int, int]]) -> None:
    """Versions count 1, 2, 3… within a stream, in the order of positions."""
    last: Counter[str] = Counter()
    for position, stream, version, _ in events:
        assert version == last[stream] + 1, f"{stream} {version} at {position} is out of order"
        last[stream] = version


def _check_totals(query: Query, seen: Sequence[tuple[int, str, int, int]]) -> None:
    expected: dict[str, tuple[int, int, int]] = {}
    for position, stream, _, amount in seen:
        total, count, chain = expected.get(stream, (0, 0, 0))
        expected[stream] = total + amount, count + 1, (chain * 31 + position) % (2**61 - 1)
    if not seen and not _exists(query, "totals"):
        return
    rows = {row[0]: row[1:] for row in query("SELECT account, amount, events, chain FROM totals")}
    assert rows == expected


def _check_ledger(query: Query, seen: Sequence[tuple[int, str, int, int]]) -> None:
    if not seen and not _exists(query, "ledger"):
        return
    lines = query("SELECT position, stream, version FROM ledger ORDER BY entry")
    _check_order(lines, [event[:3] for event in seen])
    counts: dict[str, int] = dict(query("SELECT stream, n FROM ledger_count"))
    assert counts == dict(Counter(event[1] for event in seen))


def _check_order(lines: list[tuple[Any, ...]], seen: list[tuple[int, str, int]]) -> None:
    """Each once; and in order, within a stream where shards write at once."""
    assert sorted(lines) == seen
    for stream in {stream for _, stream, _ in seen}:
        own = [line for line in lines if line[1] == stream]
        assert own == sorted(own), f"{stream} is out of order"


def _check_tally(query: Query, seen: Sequence[tuple[int, str, int, int]]) -> None:
    if not seen and not _exists(query, "tally"):
        return
    lines = query("SELECT position, stream FROM tally ORDER BY entry")
    assert lines == [event[:2] for event in seen]
    expected: dict[str, tuple[int, int]] = {}
    for _, stream, _, amount in seen:
        count, total = expected.get(stream, (0, 0))
        expected[stream] = count + 1, total + amount
    rows = query("SELECT stream, n, amount FROM tally_sum")
    assert {row[0]: (row[1], int(row[2])) for row in rows} == expected


CHECKS = {"totals": _check_totals, "ledger": _check_ledger, "tally": _check_tally}


def _exists(query: Query, table: str) -> bool:
    return bool(query(f"SELECT name FROM holdfast_table WHERE name = '{table}'"))


def snapshot(url: str, read: Callable[[Query], T]) -> T:
    """Calls `read` with a function that queries one snapshot of the database."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as raw:
            raw.execute("BEGIN")
            return read(lambda sql: raw.execute(sql).fetchall())
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return read(lambda sql: connection.execute(sql.encode()).fetchall())
