"""Shards: each event is applied once and in order, also while their number changes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from holdfast import (
    App,
    Backoff,
    ConfigError,
    Event,
    HoldfastError,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    QueueSelection,
    Retry,
    Skip,
    TableProjection,
    Tx,
    WaitTimeout,
    on,
)
from holdfast.errors import LayoutChanged
from holdfast.model.feed_names import shard_feed, shard_feeds, shard_of
from holdfast.runtime.shards import shard_worker
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.session import SqlSession
from tests.contracts.samples import Counted, eventually, execute, fetch
from tests.support.limits import set_limits, small_batches

STREAMS = [f"stream-{number}" for number in range(9)]
ALL = QueueSelection(projection="lines")
AGAIN = Policy(on_error=Retry(Backoff(max_attempts=10_000, delay_seconds=0.05, multiplier=1.0)))
"""The shard with a bad event gets nowhere, and holds nothing."""


@dataclass
class Sum:
    stream: str
    total: int = 0
    order: str = ""


class Bench:
    """An app with a table and a list of lines, in shards; `bad` events fail."""

    def __init__(self, open_app: Callable[..., App], url: str) -> None:
        is_sqlite = url.startswith("sqlite")
        self._open_app, self._mark = open_app, "?" if is_sqlite else "%s"
        # Rows of a table are in no order of their own.
        self._entry = (
            "INTEGER PRIMARY KEY AUTOINCREMENT"
            if is_sqlite
            else "bigint GENERATED ALWAYS AS IDENTITY"
        )
        self.bad: set[int] = set()
        self.seconds = 0.0
        self.hangs, self.is_hanging, self.released = (threading.Event() for _ in range(3))

    def app(self, shards: int, *, policy: Policy | None = None, replayable: bool = False) -> App:
        app, bench = self._open_app(), self

        @app.projection(shards=shards)
        class Sums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.total += event.data.n
                row.order += f" {event.data.n}"

        ddl = f"CREATE TABLE lines (entry {self._entry}, position int, stream text, n int)"
        insert = f"INSERT INTO lines (position, stream, n) VALUES ({', '.join([self._mark] * 3)})"

        @app.projection(shards=shards, policy=policy or Policy(on_error=Park()))
        class Lines(Projection):
            tables: ClassVar = {"lines": ddl}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n in bench.bad:
                    raise ValueError(f"no {event.data.n}")
                time.sleep(bench.seconds)
                if bench.hangs.is_set():
                    bench.is_hanging.set()
                    bench.released.wait(60)
                tx.execute(insert, (event.position, event.stream, event.data.n))

        Lines.replayable = replayable
        return app


@pytest.fixture
def bench(store_url: str) -> Iterator[Bench]:
    with ExitStack() as opened:
        yield Bench(lambda: opened.enter_context(App(store_url)), store_url)


def append(app: App, numbers: range) -> None:
    for n in numbers:
        app.journal.append(STREAMS[n % len(STREAMS)], [Counted(n)])


def check(app: App) -> None:
    """Each event is in both read models, once, and in the order of its stream."""
    events = [(e.position, e.stream, e.data.n) for e in app.journal.read()]
    lines = fetch(app, "SELECT position, stream, n FROM lines ORDER BY entry")
    assert sorted(lines) == events
    for stream in STREAMS:
        own = [n for _, s, n in events if s == stream]
        assert [n for _, s, n in lines if s == stream] == own
        text = "".join(f" {n}" for n in own)
        expected = [(sum(own), text)] if own else []
        assert (
            fetch(app, f"SELECT total, \"order\" FROM sums WHERE stream = '{stream}'") == expected
        )


def test_there_is_work_for_as_many_processes_as_runners(bench: Bench) -> None:
    """Before the first run as the code says, then as the database does."""
    app = bench.app(3)
    runners = sum(definition.shards for definition in app._catalog)
    assert app.most_processes() == runners
    app.catch_up()
    app.reshard("sums", shards=5, by="ann")
    assert app.most_processes() == runners + 2


def feeds(app: App, projection: str) -> list[str]:
    return sorted(status.feed for status in app.status() if status.projection == projection)


def reshard(app: App, shards: int | None, **settings: Any) -> None:
    for name in ("sums", "lines"):
        app.reshard(name, shards=shards, by="me", **settings)


def await_others(app: App) -> None:
    """Returns when all but one shard of the lines are at the head."""

    def are_there() -> bool:
        lines = [status for status in app.status() if status.projection == "lines"]
        return sum(status.lag_events == 0 for status in lines) == len(lines) - 1 > 0

    eventually(are_there)


def test_every_shard_has_its_streams_and_all_come_to_the_head(bench: Bench) -> None:
    app = bench.app(4)
    append(app, range(100))
    app.catch_up()
    check(app)
    found = {s.feed: s for s in app.status() if s.projection == "sums"}
    assert sorted(found) == shard_feeds(4)
    for number, feed in enumerate(shard_feeds(4), start=1):
        own = sum(shard_of(STREAMS[n % len(STREAMS)], 4) == number for n in range(100))
        assert found[feed].events_processed == own
        assert (found[feed].position, found[feed].lag_events) == (app.journal.head(), 0)


@pytest.mark.parametrize("numbers", [(2, 3, 1, 4), (1, 5, 2, 2), (6, 1, 6, 1)])
def test_the_number_changes_between_events(bench: Bench, numbers: tuple[int, ...]) -> None:
    app = bench.app(3)
    append(app, range(20))
    app.catch_up()
    for step, shards in enumerate(numbers, start=1):
        reshard(app, shards)
        assert feeds(app, "lines") == sorted(shard_feeds(shards))
        append(app, range(20 * step, 20 * step + 20))
        if step % 2:
            app.catch_up()
            check(app)
    app.catch_up()
    check(app)
    assert sum(s.events_processed for s in app.status() if s.projection == "lines") == 100


def test_the_number_changes_while_shards_are_at_different_places(bench: Bench) -> None:
    """One has not begun and others are far: they meet at the furthest, and nothing is passed."""
    app = bench.app(3, policy=AGAIN)
    append(app, range(30))
    bench.bad = {0}
    with app.running():
        await_others(app)
        with pytest.raises(WaitTimeout, match="go on with that"):
            app.reshard("lines", shards=2, by="me", timeout_seconds=0.3)
        append(app, range(30, 60))
        bench.bad = set()
        eventually(lambda: feeds(app, "lines") == shard_feeds(2))
        app.wait_for("lines", app.journal.head())
        app.wait_for("sums", app.journal.head())
    check(app)


def test_the_number_changes_while_events_come(bench: Bench) -> None:
    app = bench.app(2)
    ended = threading.Event()

    def go_on() -> None:
        for n in range(10**6):
            if ended.is_set() and n % len(STREAMS) == 0:
                return
            append(app, range(n, n + 1))

    appending = threading.Thread(target=go_on)
    with app.running():
        appending.start()
        for shards in (4, 1, 3, 2):
            reshard(app, shards)
            app.wait_for("lines", app.journal.head(), timeout_seconds=30)
        ended.set()
        appending.join()
        for name in ("sums", "lines"):
            app.wait_for(name, app.journal.head(), timeout_seconds=30)
    check(app)


def test_what_waits_in_the_queue_goes_to_its_shard(bench: Bench) -> None:
    app = bench.app(3)
    bench.bad = {4, 5}
    append(app, range(40))
    app.catch_up()
    waiting = [item.position for item in app.queue.list(ALL)]
    assert len(waiting) > 2
    for shards in (5, 1, 2):
        app.reshard("lines", shards=shards, by="me")
        items = app.queue.list(ALL)
        assert [item.position for item in items] == waiting
        assert all(i.feed == shard_feed(shard_of(i.lane, shards), shards) for i in items)
        app.catch_up()
        assert [item.position for item in app.queue.list(ALL)] == waiting
    assert sum(s.closed_lanes for s in app.status()) == 2
    bench.bad = set()
    app.queue.requeue(ALL, by="me")
    app.catch_up()
    assert app.queue.list(ALL) == []
    check(app)


def test_a_runner_of_former_shards_can_not_begin_again(bench: Bench) -> None:
    """Its checkpoint would begin at the first event, and apply everything a second time."""
    app = bench.app(3)
    append(app, range(20))
    app.catch_up()
    reshard(app, 2)
    with closing(SqlSession(app._database)) as session:
        for feed in ("journal", *shard_feeds(3)):
            with pytest.raises(LayoutChanged, match="runs in 2 shards"):
                session.open_checkpoint("lines", feed)
    assert feeds(app, "lines") == shard_feeds(2)


def test_code_that_knows_of_no_shards_is_refused(bench: Bench) -> None:
    app, older = bench.app(2), bench.app(1)
    append(app, range(20))
    app.catch_up()
    with pytest.raises(ProjectionFaulted, match=r"runs in 2 shards.*register it with shards=2"):
        older.catch_up()
    check(app)
    reshard(older, None)
    append(app, range(20, 40))
    older.catch_up()
    assert feeds(app, "sums") == ["journal"]
    # Code that knows of shards goes on with as many as there are.
    append(app, range(40, 60))
    app.catch_up()
    assert feeds(app, "sums") == ["journal"]
    check(app)


def test_a_projection_that_has_run_alone_goes_on_alone_until_it_is_changed(bench: Bench) -> None:
    before, app = bench.app(1), bench.app(4)
    append(app, range(20))
    before.catch_up()
    append(app, range(20, 40))
    app.catch_up()
    assert feeds(app, "lines") == ["journal"]
    reshard(app, None)
    assert feeds(app, "lines") == shard_feeds(4)
    append(app, range(40, 60))
    app.catch_up()
    check(app)


def test_a_change_is_taken_back(bench: Bench) -> None:
    app = bench.app(2, policy=AGAIN)
    append(app, range(20))
    bench.bad = {0}
    with app.running():
        await_others(app)
        with pytest.raises(WaitTimeout):
            app.reshard("lines", shards=5, by="me", timeout_seconds=0.2)
        assert app.reshard("lines", shards=2, by="me") == 2
        bench.bad = set()
        append(app, range(20, 40))
        for name in ("sums", "lines"):
            app.wait_for(name, app.journal.head())
    assert feeds(app, "lines") == shard_feeds(2)
    check(app)
    assert [row.action for row in app.audit("lines")] == ["reshard", "reshard"]


def test_a_shard_that_has_stopped_keeps_the_number_as_it_is(bench: Bench) -> None:
    app = bench.app(3, policy=Policy())
    bench.bad = {7}
    append(app, range(20))
    with pytest.raises(ProjectionFaulted):
        app.catch_up()
    with pytest.raises(ProjectionFaulted, match="no 7"):
        app.reshard("lines", shards=2, by="me")
    assert feeds(app, "lines") == shard_feeds(3)
    bench.bad = set()
    assert app.reshard("lines", shards=2, by="me") == 2
    app.catch_up()
    check(app)


def test_a_paused_projection_is_not_changed(bench: Bench) -> None:
    app = bench.app(2)
    append(app, range(20))
    assert app.pause("lines", by="me")
    assert not app.pause("lines", by="me")
    with pytest.raises(ConfigError, match=r"paused by me.*holdfast resume lines"):
        app.reshard("lines", shards=3, by="me")
    with pytest.raises(ProjectionFaulted, match="paused"):
        app.catch_up()
    assert app.resume("lines", by="me")
    app.reshard("lines", shards=3, by="me")
    app.catch_up()
    check(app)


def test_a_reset_begins_with_what_the_code_says(bench: Bench) -> None:
    app = bench.app(2)
    append(app, range(20))
    app.catch_up()
    reshard(app, 5)
    for name in ("sums", "lines"):
        app.reset(name)
    app.catch_up()
    assert feeds(app, "lines") == shard_feeds(2)
    check(app)


def test_skipped_events_come_again_after_a_rewind(bench: Bench) -> None:
    app = bench.app(3, policy=Policy(on_error=Skip()), replayable=True)
    bench.bad = {6, 13}
    append(app, range(20))
    app.catch_up()
    first = next(e.position for e in app.journal.read() if e.data.n == 6)
    bench.bad = set()
    assert app.rewind("lines", by="me") == first - 1
    app.catch_up()
    expected = [(n, 1 if n < 6 or n in (6, 13) else 2) for n in range(20)]
    counted = "SELECT n, count(*) FROM lines GROUP BY n ORDER BY n"
    assert fetch(app, counted) == expected
    with pytest.raises(HoldfastError, match="no skipped event"):
        app.rewind("lines", by="me")


def test_the_next_event_of_a_shard_is_parked_by_hand(bench: Bench) -> None:
    app = bench.app(3, policy=Policy())
    bench.bad = {7}
    append(app, range(40))
    with pytest.raises(ProjectionFaulted):
        app.catch_up()
    positions = {e.data.n: e.position for e in app.journal.read()}
    with pytest.raises(HoldfastError, match="other events come before"):
        app.queue.add("lines", positions[7 + len(STREAMS)], by="me")
    with pytest.raises(ConfigError, match=r"is in feed 'journal\[./3\]', not 'journal\[9/9\]'"):
        app.queue.add("lines", positions[7], by="me", feed="journal[9/9]")
    item = app.queue.add("lines", positions[7], by="me")
    assert item.feed == shard_feed(shard_of(STREAMS[7], 3), 3)
    app.catch_up()
    bench.bad = set()
    app.queue.requeue(ALL, by="me")
    app.catch_up()
    check(app)


def test_waiting_for_a_position_waits_for_every_shard(bench: Bench) -> None:
    app = bench.app(4, policy=AGAIN)
    append(app, range(10))
    bench.bad = {0}
    with app.running():
        with pytest.raises(WaitTimeout):
            app.wait_for("lines", 1, timeout_seconds=0.5)
        bench.bad = set()
        app.wait_for("lines", app.journal.head())
        lines = fetch(app, "SELECT n FROM lines ORDER BY n")
        assert lines == [(n,) for n in range(10)]
        feed = shard_feed(shard_of("stream-1", 4), 4)
        written = app.journal.append("stream-1", [Counted(10)])
        app.wait_for("lines", written.position, feed=feed)
        assert fetch(app, "SELECT n FROM lines WHERE n = 10") == [(10,)]


def test_code_that_knows_of_no_shards_and_runs_is_overruled(bench: Bench) -> None:
    """It looks for no barrier, so there must not be a moment in which it could pass one."""
    older, app = bench.app(1), bench.app(3)
    append(app, range(20))
    with older.running() as running:
        for name in ("sums", "lines"):
            older.wait_for(name, app.journal.head())
            change = ChangedBy("me", datetime.now(UTC))
            app._layouts.plan(app._catalog.find(name), 3, change)
        append(app, range(20, 40))
        head = app.journal.head()

        def has_moved_on_or_stopped() -> bool:
            at = {s.projection: s.position for s in app.status() if s.feed == "journal"}
            return len(running.faulted) == 2 or set(at.values()) == {head}

        eventually(has_moved_on_or_stopped)
        reshard(app, None)
        app.catch_up()
        check(app)
        eventually(lambda: sorted(running.faulted) == ["lines", "sums"])


def test_rows_that_are_not_what_the_checkpoint_says_are_not_taken_over(bench: Bench) -> None:
    app = bench.app(2)
    append(app, range(20))
    app.catch_up()
    execute(app, "UPDATE holdfast_checkpoint SET needs_reset = true WHERE feed = 'journal[2/2]'")
    with pytest.raises(ConfigError, match="holdfast reset lines begins again"):
        app.reshard("lines", shards=3, by="me")
    assert feeds(app, "lines") == shard_feeds(2)


def test_a_transaction_that_operators_may_not_interrupt_does_not_pass_the_barrier(
    bench: Bench,
) -> None:
    """After operators came between twice, it holds the checkpoint, and goes by what it sees."""
    app = bench.app(2, policy=AGAIN)
    small_batches(app, 2)
    set_limits(app, lock_first_seconds=60.0, revisions_in_vain=1)
    append(app, range(9))
    app.catch_up()
    bench.seconds = 0.02
    with app.running():
        append(app, range(9, 60))
        for _ in range(3):
            execute(app, "UPDATE holdfast_checkpoint SET revision = revision + 1")
        for shards in (3, 2, 4):
            app.reshard("lines", shards=shards, by="me", timeout_seconds=60)
        app.wait_for("lines", app.journal.head(), timeout_seconds=60)
        app.wait_for("sums", app.journal.head(), timeout_seconds=60)
    check(app)


def test_a_number_that_comes_back_before_anybody_looks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, other = bench.app(3), bench.app(3)
    append(app, range(20))
    with app.running():
        for name in ("sums", "lines"):
            app.wait_for(name, app.journal.head())
        began = threading.Barrier(2)
        monkeypatch.setattr(shard_worker.ShardWorker, "_check", paused(began, times=2))
        began.wait(30)
        reshard(other, 2)
        eventually(lambda: feeds(app, "lines") == shard_feeds(2))
        reshard(other, 3)
        began.wait(30)
        append(app, range(20, 40))
        for name in ("sums", "lines"):
            app.wait_for(name, app.journal.head())
    check(app)


def paused(barrier: threading.Barrier, *, times: int) -> Any:
    """A look of the first worker that comes, which waits so often before it is taken."""
    look, left = shard_worker.ShardWorker._check, [times]

    def wait_and_look(self: Any) -> None:
        if self.definition.name == "lines":
            for _ in range(left[0]):
                barrier.wait(30)
            left[0] = 0
        look(self)

    return wait_and_look


def test_operators_who_resume_while_shards_change(bench: Bench) -> None:
    app = bench.app(2, policy=AGAIN)
    append(app, range(20))
    bench.bad = {0}
    with app.running():
        await_others(app)
        with pytest.raises(WaitTimeout):
            app.reshard("lines", shards=3, by="me", timeout_seconds=0.1)
        app.pause("lines", by="me")
        bench.bad = set()
        assert app.resume("lines", by="me")
        eventually(lambda: feeds(app, "lines") == shard_feeds(3))
        assert not [status for status in app.status() if status.paused_by is not None]
        for name in ("sums", "lines"):
            app.wait_for(name, app.journal.head())
    check(app)


def test_a_change_that_waits_for_a_shard_that_has_stopped(bench: Bench) -> None:
    app = bench.app(3, policy=Policy())
    bench.bad = {0}
    append(app, range(20))
    for attempt in (
        app.catch_up,
        lambda: app.reshard("lines", shards=2, by="me"),
        app.catch_up,
    ):
        with pytest.raises(ProjectionFaulted, match="no 0"):
            attempt()
    (slow,) = [s for s in app.status() if s.projection == "lines" and s.state == "faulted"]
    reasons = [r for r in app.explain("lines") if r.kind == "resharding"]
    assert [r.fields["feed"] for r in reasons if "others wait for it" in r.text] == [slow.feed]
    assert len(reasons) == 3
    bench.bad = set()
    assert app.reshard("lines", shards=2, by="me") == 2
    app.catch_up()
    assert feeds(app, "lines") == shard_feeds(2)
    check(app)


def test_a_hanging_shard_is_abandoned_when_the_process_ends(bench: Bench) -> None:
    app = bench.app(2)
    append(app, range(9))
    bench.hangs.set()
    supervisor = app.supervise()
    supervisor.start()
    try:
        assert bench.is_hanging.wait(30)
        supervisor.stop()
        assert not supervisor.join(0.3)
        supervisor.abandon(10)
        assert {s.state for s in app.status() if s.projection == "lines"} == {"stopped"}
    finally:
        bench.hangs.clear()
        bench.released.set()
        supervisor.join(30)


def test_code_that_knows_of_no_shards_can_look_and_pause(bench: Bench) -> None:
    app, older = bench.app(3), bench.app(1)
    append(app, range(20))
    app.catch_up()
    older.wait_for("lines", app.journal.head())
    assert older.pause("lines", by="me")
    assert {s.state for s in app.status() if s.projection == "lines"} == {"paused"}
    assert older.resume("lines", by="me")
    assert feeds(app, "lines") == shard_feeds(3)


def test_ids_of_former_shards_are_not_used_again(bench: Bench) -> None:
    """A runner that does not know of its end goes by the id."""
    app = bench.app(1)
    append(app, range(9))
    app.catch_up()
    before = {row[0] for row in fetch(app, "SELECT id FROM holdfast_checkpoint")}
    other = bench.app(2)
    for name in ("sums", "lines"):
        other.reset(name)
    other.catch_up()
    assert not before & {row[0] for row in fetch(app, "SELECT id FROM holdfast_checkpoint")}
    check(app)


def test_a_change_can_be_taken_back_while_it_is_paused(bench: Bench) -> None:
    app = bench.app(2, policy=AGAIN)
    append(app, range(20))
    bench.bad = {0}
    with app.running():
        await_others(app)
        with pytest.raises(WaitTimeout):
            app.reshard("lines", shards=3, by="me", timeout_seconds=0.1)
        app.pause("lines", by="me")
        with pytest.raises(ConfigError, match="paused by me"):
            app.reshard("lines", shards=3, by="me")
        assert app.reshard("lines", shards=2, by="me") == 2
        bench.bad = set()
        app.resume("lines", by="me")
        for name in ("sums", "lines"):
            app.wait_for(name, app.journal.head())
    assert feeds(app, "lines") == shard_feeds(2)
    check(app)


def test_code_that_says_nothing_of_shards_does_not_make_them(bench: Bench) -> None:
    app = bench.app(1)
    with pytest.raises(ConfigError, match=r"with shards=2 first"):
        app.reshard("lines", shards=2, by="me")


def test_a_reset_to_another_number_stays_paused(bench: Bench) -> None:
    app = bench.app(2)
    append(app, range(20))
    app.catch_up()
    reshard(app, 3)
    for name in ("sums", "lines"):
        app.pause(name, by="me")
        app.reset(name)
    assert {(s.feed, s.paused_by) for s in app.status()} == {(f, "me") for f in shard_feeds(2)}
    for name in ("sums", "lines"):
        app.resume(name, by="me")
    app.catch_up()
    check(app)


def test_shards_and_an_outbox_know_of_each_other(store_url: str, bench: Bench) -> None:
    """Whichever comes later does not begin at the first event again."""
    app = bench.app(3)
    append(app, range(20))
    app.catch_up()
    with App(store_url) as later:
        by_outbox(later, "lines")
        append(later, range(20, 30))  # Its worker alone is refused.
        with pytest.raises(ProjectionFaulted, match="reshard lines --to 1"):
            later.catch_up()
        assert later.explain("lines")[0].kind == "delivery"
    append(app, range(30, 40))
    app.catch_up()
    check(app)

    with App(store_url) as outbox, App(store_url) as sharded:
        by_outbox(outbox, "copies")
        outbox.catch_up()
        by_outbox(sharded, "copies", delivery="log", shards=3)
        with pytest.raises(ProjectionFaulted, match="delivered by an outbox"):
            sharded.catch_up()
        with pytest.raises(ConfigError, match="delivered by an outbox"):
            sharded.reshard("copies", by="me")
        append(app, range(40, 60))
        outbox.catch_up()
        found = fetch(app, "SELECT count(*), count(DISTINCT position) FROM copies")
        assert found == [(60, 60)]


def by_outbox(app: App, name: str, **settings: Any) -> None:
    mark = "?" if str(app.url).startswith("sqlite") else "%s"

    @app.projection(name=name, **{"delivery": "outbox", **settings})
    class Copies(Projection):
        tables: ClassVar = {name: f"CREATE TABLE {name} (position int, stream text, n int)"}

        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            values = (event.position, event.stream, event.data.n)
            tx.execute(f"INSERT INTO {name} VALUES ({mark}, {mark}, {mark})", values)
