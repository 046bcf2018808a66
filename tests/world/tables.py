"""What the tables of a projection hold, by reads that share no code with holdfast.

Everything is read with the plain drivers in one snapshot, so it may be asked at any moment.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from zlib import crc32

import psycopg

from tests.world.topic import amount

T = TypeVar("T")
Query = Callable[[str], list[tuple[Any, ...]]]


def snapshot(url: str, read: Callable[[Query], T]) -> T:
    """Calls `read` with a function that queries one snapshot of the database."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as raw:
            raw.execute("BEGIN")
            return read(lambda sql: raw.execute(sql).fetchall())
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return read(lambda sql: connection.execute(sql.encode()).fetchall())


@dataclass(frozen=True, slots=True)
class Given:
    """An event that a projection is given. `at` is its position, or on a topic any number that
    orders the events of a stream.
    """

    at: int
    stream: str
    version: int
    amount: int
    key: str

    def lane(self, projection: str) -> str:
        return self.key if projection == "keyed" else self.stream


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of a projection on one feed."""

    feed: str
    position: int
    processed: int
    epoch: int
    state: str
    unclean_ends: int
    mark_position: int | None


@dataclass(frozen=True, slots=True)
class Feeds:
    """What a projection reads, and how far it has come."""

    events: dict[int, Given]
    checkpoints: list[Checkpoint]
    passed: frozenset[int]
    """The events of which the projection must give account."""
    left: int
    """How many events, or positions of a backfill, are still to come."""
    is_at_head: bool
    is_outbox: bool = False
    is_topic: bool = False


def read_projections(query: Query) -> list[str]:
    return [name for (name,) in query("SELECT DISTINCT projection FROM holdfast_checkpoint")]


def read_feeds(query: Query, name: str) -> Feeds:
    checkpoints = [
        Checkpoint(*row)
        for row in query(
            "SELECT feed, position, events_processed, epoch, state, unclean_ends, mark_position"
            f" FROM holdfast_checkpoint WHERE projection = '{name}' ORDER BY feed"
        )
    ]
    if any(not each.feed.startswith("journal") for each in checkpoints):
        return _of_topic(query, name, checkpoints)
    events = read_journal(query)
    outbox = query(f"SELECT backfill_until FROM holdfast_outbox WHERE projection = '{name}'")
    if outbox:
        return _of_outbox(events, checkpoints, outbox[0][0])
    layout = query(f"SELECT shards FROM holdfast_layout WHERE projection = '{name}'")
    return _of_journal(events, checkpoints, layout[0][0] if layout else 1)


def read_journal(query: Query) -> dict[int, Given]:
    rows = query(
        "SELECT position, stream, version, CAST(data AS text) FROM holdfast_event ORDER BY position"
    )
    events = {}
    for at, stream, version, text in rows:
        data = json.loads(text)
        events[at] = Given(at, stream, version, data["amount"], data.get("key", ""))
    return events


def _of_journal(events: dict[int, Given], checkpoints: Sequence[Checkpoint], shards: int) -> Feeds:
    positions = {each.feed: each.position for each in checkpoints}
    head = max(events, default=0)
    passed = [
        at for at, each in events.items() if at <= positions.get(_feed(each.stream, shards), 0)
    ]
    return Feeds(
        events,
        list(checkpoints),
        frozenset(passed),
        left=len(events) - len(passed),
        is_at_head=set(positions.values()) == {head} and len(positions) == shards,
    )


def _feed(stream: str, shards: int) -> str:
    """The feed to which a stream belongs."""
    return "journal" if shards == 1 else f"journal[{crc32(stream.encode()) % shards + 1}/{shards}]"


def _of_outbox(
    events: dict[int, Given], checkpoints: Sequence[Checkpoint], until: int | None
) -> Feeds:
    """Appends enqueue what comes after `until`; the backfill brings the rest."""
    position = min((each.position for each in checkpoints), default=0)
    passed = [at for at in events if until is not None and (at <= position or at > until)]
    left = len(events) if until is None else max(0, until - position)
    return Feeds(
        events,
        list(checkpoints),
        frozenset(passed),
        left=left,
        is_at_head=left == 0,
        is_outbox=True,
    )


def _of_topic(query: Query, name: str, checkpoints: Sequence[Checkpoint]) -> Feeds:
    """The events up to the version that is known of each stream. Nothing of them is random."""
    rows = query(f"SELECT stream, version FROM holdfast_stream WHERE projection = '{name}'")
    events: dict[int, Given] = {}
    for stream, last in sorted(rows):
        for version in range(1, last + 1):
            at = len(events) + 1
            events[at] = Given(at, stream, version, amount(stream, version), "")
    return Feeds(
        events, list(checkpoints), frozenset(events), left=0, is_at_head=True, is_topic=True
    )


def read_applied(query: Query, name: str, feeds: Feeds) -> dict[str, list[int]]:
    """The events that were applied in each lane, in the order in which they were.

    Asserts that counts and sums are those of the events.
    """
    if not query(f"SELECT name FROM holdfast_table WHERE name = '{name}'"):
        return {}
    return _READERS[name](query, feeds)


def _read_totals(query: Query, feeds: Feeds) -> dict[str, list[int]]:
    numbers = {(each.stream, each.version): at for at, each in feeds.events.items()}
    return _read_rows(query, "totals", feeds, lambda name, step: numbers.get((name, step), -step))


def _read_keyed(query: Query, feeds: Feeds) -> dict[str, list[int]]:
    return _read_rows(query, "keyed", feeds, lambda _, step: step)


def _read_rows(
    query: Query, table: str, feeds: Feeds, number: Callable[[str, int], int]
) -> dict[str, list[int]]:
    last = "_version" if feeds.is_topic else "_position"
    found: dict[str, list[int]] = {}
    for name, total, count, text, told in query(
        f"SELECT name, amount, count, CAST(steps AS text), {last} FROM {table}"
    ):
        steps = json.loads(text)
        at = found[name] = [number(name, step) for step in steps]
        _check_known(name, at, feeds)
        assert (count, total) == (len(at), _sum(at, feeds)), f"row {name!r}: {count}, {total}"
        expected = max(steps) if feeds.is_topic else max(at)
        assert told == expected, f"row {name!r} is at {told}, not {expected}"
    return found


def _read_ledger(query: Query, feeds: Feeds) -> dict[str, list[int]]:
    numbers = {(each.stream, each.version): at for at, each in feeds.events.items()}
    found: dict[str, list[int]] = {}
    for position, stream, version, change in query(
        "SELECT position, stream, version, amount FROM ledger ORDER BY entry"
    ):
        at = numbers.get((stream, version), -version)
        found.setdefault(stream, []).append(at)
        _check_known(stream, [at], feeds)
        assert change == feeds.events[at].amount, f"{stream} {version} has the amount {change}"
        assert feeds.is_topic or position == at, f"{stream} {version} is said to be at {position}"
    counts: dict[str, int] = dict(query("SELECT stream, n FROM ledger_count"))
    assert counts == {stream: len(at) for stream, at in found.items()}
    return found


def _read_tally(query: Query, feeds: Feeds) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    lines = query("SELECT position, stream FROM tally ORDER BY entry")
    assert lines == sorted(lines), "the tally is out of order"
    for at, stream in lines:
        found.setdefault(stream, []).append(at)
    sums = {
        stream: (n, int(a)) for stream, n, a in query("SELECT stream, n, amount FROM tally_sum")
    }
    for stream, at in found.items():
        _check_known(stream, at, feeds)
    assert sums == {stream: (len(at), _sum(at, feeds)) for stream, at in found.items()}
    return found


_READERS: Mapping[str, Callable[[Query, Feeds], dict[str, list[int]]]] = {
    "totals": _read_totals,
    "keyed": _read_keyed,
    "ledger": _read_ledger,
    "tally": _read_tally,
}


def _check_known(lane: str, applied: Sequence[int], feeds: Feeds) -> None:
    unknown = [at for at in applied if at not in feeds.events]
    assert not unknown, f"{lane!r} has events that are not there: {unknown}"


def _sum(applied: Sequence[int], feeds: Feeds) -> int:
    return sum(feeds.events[at].amount for at in applied)


@dataclass(frozen=True, slots=True)
class Item:
    """What is in the queue at a position."""

    lane: str
    status: str
    attempts: int
    next_attempt_at: datetime | None


def read_queue(query: Query, name: str) -> dict[int, Item]:
    rows = query(
        "SELECT position, lane, status, attempts, next_attempt_at FROM holdfast_queue"
        f" WHERE projection = '{name}' ORDER BY position"
    )
    return {at: Item(lane, status, n, _moment(next_at)) for at, lane, status, n, next_at in rows}


@dataclass(frozen=True, slots=True)
class LaneRow:
    """What the row of a closed lane says."""

    events: int
    due_at: datetime | None
    token: str | None


def read_lane_rows(query: Query, name: str) -> dict[str, LaneRow]:
    rows = query(
        f"SELECT lane, events, due_at, token FROM holdfast_lane WHERE projection = '{name}'"
    )
    return {lane: LaneRow(events, _moment(due_at), token) for lane, events, due_at, token in rows}


def _moment(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
