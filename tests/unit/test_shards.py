"""Which shard a stream belongs to, and which projections can have shards."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import (
    App,
    ConfigError,
    Event,
    NewEvent,
    Projection,
    SqlProjection,
    TableProjection,
    Tx,
    on,
)
from holdfast.kafka import KafkaPublisher, KafkaSource
from holdfast.model.feed_names import (
    is_journal,
    is_ours,
    shard_feed,
    shard_feeds,
    shard_of,
    shards_in,
)
from holdfast.runtime.shards.layout import ShardLayout
from holdfast.runtime.shards.shard_source import ShardSource
from holdfast.sql.database import Database
from holdfast.sql.journal.journal_source import JournalSource
from holdfast.sql.store.head_reader import HeadReader
from holdfast.sql.store.session import SqlSession
from holdfast.sql.store.shard_layouts import SqlShardLayouts
from tests.contracts.samples import execute


@dataclass
class Row:
    name: str
    n: int = 0


class Rows(TableProjection[Row]):
    @on("Counted")
    def counted(self, row: Row, event: Event[Any]) -> None:
        row.n += 1


class Keyed(Rows):
    def key(self, event: Event[Any]) -> str:
        return str(event.data["name"])


class Handled(Projection):
    @on("Counted")
    def counted(self, event: Event[Any], tx: Tx) -> None: ...


class OwnLane(Handled):
    def lane(self, event: Event[Any]) -> str:
        return str(event.data["name"])


class Published(KafkaPublisher):
    topic = "orders"
    bootstrap = "127.0.0.1:1"


class Summed(SqlProjection):
    tables: ClassVar = {"summed": "CREATE TABLE summed (stream text)"}
    events = ("*",)
    sql = "INSERT INTO summed SELECT stream FROM batch"


def test_the_shard_of_a_stream_never_changes() -> None:
    """These are in databases: another hash would apply events twice, and others never."""
    streams = ["account-1", "account-2", "account-3", "Zürich", "注文-7"]
    assert [shard_of(stream, 4) for stream in streams] == [1, 3, 1, 3, 4]
    assert [shard_of(stream, 7) for stream in streams] == [4, 3, 6, 6, 5]
    assert {shard_of(stream, 1) for stream in streams} == {1}


def test_streams_are_spread_evenly() -> None:
    for shards in (2, 3, 4, 8, 16):
        counts = [0] * shards
        for number in range(10_000):
            counts[shard_of(f"account-{number}", shards) - 1] += 1
        assert min(counts) > 0.8 * 10_000 / shards, counts


def test_the_names_of_shards() -> None:
    assert shard_feeds(3) == ["journal[1/3]", "journal[2/3]", "journal[3/3]"]
    assert shard_feed(1, 1) == "journal"
    assert [shards_in(feed) for feed in ("journal", "journal[2/3]", "messages")] == [1, 3, None]
    # A topic of Kafka may have any name but one with a slash.
    assert not is_journal("journal[3]")
    assert [is_ours(feed) for feed in ("journal", "journal[2/3]", "messages")] == [True] * 3
    assert not is_ours("journal[3]")


@pytest.mark.parametrize(
    ("projection", "settings", "reason"),
    [
        (Keyed, {}, r"own key\(\) one row or lane has events of several streams"),
        (OwnLane, {}, r"own lane\(\) one row or lane has events of several streams"),
        (Summed, {}, "work is the database's"),
        (Handled, {"delivery": "outbox"}, "concurrency="),
        (
            Handled,
            {"source": KafkaSource("orders", bootstrap="127.0.0.1:1", group="g")},
            "partitions already",
        ),
        (Published, {}, "waits for its broker"),
    ],
)
def test_projections_that_can_not_have_shards(
    projection: Any, settings: dict[str, Any], reason: str
) -> None:
    with App("sqlite:///:memory:") as app:
        with pytest.raises(ConfigError, match=reason):
            app.projection(name="rows", shards=2, **settings)(projection)
        assert app.projections == ()
        app.projection(name="rows", shards=1, **settings)(projection)


@pytest.mark.parametrize("shards", [0, -1, 257, True, "2", 2.0, None])
def test_a_number_of_shards_that_is_none(shards: Any) -> None:
    with App("sqlite:///:memory:") as app:
        with pytest.raises(ConfigError, match="shards is"):
            app.projection(shards=shards)(Rows)
        app.projection(shards=2)(Rows)
        with pytest.raises(ConfigError, match="shards is 0"):
            app.reshard("rows", shards=0, by="me")


@settings(max_examples=300, deadline=None)
@given(
    streams=st.lists(st.sampled_from("abcd----"), min_size=8, max_size=40),
    shards=st.integers(1, 4),
    barrier=st.none() | st.integers(0, 20),
    reads=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), min_size=2, max_size=8),
)
def test_a_shard_is_read_from_anywhere_again_and_again(
    streams: list[str], shards: int, barrier: int | None, reads: list[tuple[int, int]]
) -> None:
    """A batch that failed is read again: nothing may be missing then that was there before.

    And each shard comes to the barrier, though that be a number without an event.
    """
    with App("sqlite:///:memory:") as app:
        app.migrate()
        for stream in streams:
            app.journal.append(stream, [NewEvent({}, type="Counted")])
        execute(app, "DELETE FROM holdfast_event WHERE stream = '-'")
        head = app.journal.head()
        layouts = FixedLayouts(app._database, barrier)
        with (
            closing(SqlSession(app._database)) as session,
            closing(HeadReader(app._database)) as reader,
        ):
            for number in range(1, shards + 1):
                journal = JournalSource(session, reader, shares=False)
                source = ShardSource(journal, layouts, "rows", number=number, of=shards)
                for after, limit in reads:
                    found, through = read_on(source, after, limit)
                    if barrier is not None and after <= barrier <= head:
                        assert through == barrier
                    assert found == [
                        position
                        for position, stream in enumerate(streams, start=1)
                        if stream != "-"
                        and shard_of(stream, shards) == number
                        and after < position <= (position if barrier is None else barrier)
                    ]


class FixedLayouts(SqlShardLayouts):
    """With a barrier from the beginning."""

    def __init__(self, database: Database, barrier: int | None) -> None:
        super().__init__(database)
        self._barrier = barrier

    def layout(self, projection: str) -> ShardLayout:
        return ShardLayout(1, None if self._barrier is None else 2, self._barrier)


def read_on(source: ShardSource, after: int, limit: int) -> tuple[list[int], int]:
    """Everything after a position, as a runner reads it, nothing of it twice; and how far it is."""
    found: list[int] = []
    while True:
        chunk = source.read(after, limit)
        found += [event.position for event in chunk.events]
        last = max((chunk.through, *(event.position for event in chunk.events)))
        if len(chunk.events) < limit and not chunk.more:
            return found, max(after, last)
        after = max(after, last)
