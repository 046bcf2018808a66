"""Projections in which a lost, doubled or reordered event stays visible, and what must hold.

Every application leaves its position behind, in the row that it changed or in a line of its own,
in the transaction that applies it. So the tables tell which events were applied, and in what order
within each lane, and nothing that went wrong can be written over.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from holdfast import (
    App,
    Backoff,
    Event,
    Failure,
    Fatal,
    Park,
    Policy,
    Poll,
    Projection,
    Retry,
    Skip,
    StoreUnavailable,
    TableProjection,
    Tx,
    on,
)
from holdfast.model.policy import Decision
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.sql.store.session import SqlSession
from tests.support.postgres import wait_until
from tests.support.worker_checks import Query, snapshot
from tests.support.worker_lease import lose_leases

Kind = Literal["folded", "keyed", "noted"]
KINDS: tuple[Kind, ...] = ("folded", "keyed", "noted")
"""Rows by stream; rows by another key, which is then the lane; handlers with lines."""

KIND = "LANES_KIND"
"""In the environment of processes."""

LATER_SECONDS = 5.0
"""When a parked event is tried again by itself."""

AGAIN = Backoff(max_attempts=2, delay_seconds=0.001, jitter=0.0)
LATER = Backoff(max_attempts=2, delay_seconds=LATER_SECONDS, multiplier=1.0, jitter=0.0)
DECISIONS: dict[str, Decision] = {
    "fatal": Fatal(),
    "skip": Skip(),
    "park": Park(),
    "park and retry": Park(LATER),
    "retry, then fatal": Retry(AGAIN, Fatal()),
    "retry, then skip": Retry(AGAIN, Skip()),
    "retry, then park": Retry(AGAIN, Park()),
    "retry, then park and retry": Retry(AGAIN, Park(LATER)),
}
OUTSTANDING = ("pending", "processing", "failed", "dead")


@dataclass
class Stepped:
    """`number` names the event before it has a position, `row` is the key of a row."""

    number: int
    row: str = ""


@dataclass
class Trail:
    """`steps`: the positions that were applied to this row, in the order in which they were."""

    name: str
    count: int = 0
    steps: list[int] = field(default_factory=list)


class Poisoned(Exception):
    """The event can't be applied now."""


def decide_park(_: Failure) -> Decision:
    return Park()


def build_lanes_app(
    url: str,
    kind: Kind,
    *,
    spoil: Callable[[Event[Stepped]], None] = lambda _: None,
    spoil_first: Callable[[Event[Stepped]], None] = lambda _: None,
    on_error: Callable[[Failure], Decision] | Decision = decide_park,
    policy: Policy | None = None,
    poll: Poll | None = None,
    clock: Clock | None = None,
    fuse: "Fuse | None" = None,
    concurrency: int | None = None,
    open_app: Callable[[str], App] | None = None,
) -> App:
    """An app with one of the projections, from the log, or with `concurrency` from the outbox.

    `spoil_first` is called before the work of every event, `spoil` after it.
    """
    app: App = App(url, clock=clock) if fuse is None else FusedApp(url, clock=clock)
    if open_app is not None:
        app = open_app(url)
    if isinstance(app, FusedApp):
        app.fuse = fuse
    is_sqlite = url.startswith("sqlite")
    mark = "?" if is_sqlite else "%s"
    entry = (
        "INTEGER PRIMARY KEY AUTOINCREMENT" if is_sqlite else "bigint GENERATED ALWAYS AS IDENTITY"
    )

    def step(row: Trail, event: Event[Stepped]) -> None:
        spoil_first(event)
        row.count += 1
        row.steps.append(event.position)
        spoil(event)

    class Folded(TableProjection[Trail]):
        """Rows by stream."""

        @on(Stepped)
        def stepped(self, row: Trail, event: Event[Stepped]) -> None:
            step(row, event)

    class Keyed(TableProjection[Trail]):
        """Rows by what the event says, across streams."""

        def key(self, event: Event[Stepped]) -> str:
            return event.data.row

        @on(Stepped)
        def stepped(self, row: Trail, event: Event[Stepped]) -> None:
            step(row, event)

    class Noted(Projection):
        """A line an event, and a count a stream."""

        tables: ClassVar = {
            "noted": f"CREATE TABLE noted (entry {entry}, position bigint, lane text)",
            "noted_count": "CREATE TABLE noted_count (lane text PRIMARY KEY, n bigint)",
        }

        @on(Stepped)
        def stepped(self, event: Event[Stepped], tx: Tx) -> None:
            spoil_first(event)
            line = (event.position, event.stream)
            tx.execute(f"INSERT INTO noted (position, lane) VALUES ({mark}, {mark})", line)
            if not tx.execute(
                f"UPDATE noted_count SET n = n + 1 WHERE lane = {mark}", (event.stream,)
            ):
                tx.execute(f"INSERT INTO noted_count VALUES ({mark}, 1)", (event.stream,))
            spoil(event)

    classes: dict[str, type[Any]] = {"folded": Folded, "keyed": Keyed, "noted": Noted}
    app.projection(
        policy=policy or Policy(on_error=on_error),
        poll=poll,
        delivery="log" if concurrency is None else "outbox",
        concurrency=concurrency or 1,
    )(classes[kind])
    return app


class Crash(BaseException):
    """The process ends here, as far as the runner can tell."""


Blow = Literal["crash before", "crash after", "lost before", "lost after", "hold", "hold inside"]


class Fuse:
    """Blows at one of the next commits of the sessions that it is built into.

    Before a commit it undoes the transaction, after it the commit stands and nobody is told. With
    `hold` the transaction does not even begin before it is let go; with `hold inside` it has begun
    and knows that its epoch is right.
    """

    def __init__(self) -> None:
        self._blow: Blow | None = None
        self._left = 0

    def set(self, blow: Blow, commits: int, *, hold: Callable[[], None] = lambda: None) -> None:
        self._blow, self._left, self._hold = blow, commits, hold

    def clear(self) -> None:
        self._blow = None

    def at_begin(self) -> None:
        if self._blow == "hold" and self._is_due():
            self._hold()

    def at_checked(self) -> None:
        if self._blow == "hold inside" and self._is_due():
            self._hold()

    def at_commit(self, when: Literal["before", "after"]) -> None:
        if self._blow == f"crash {when}" and self._is_due():
            raise Crash
        if self._blow == f"lost {when}" and self._is_due():
            raise StoreUnavailable("the connection was cut", connection_lost=True)

    def _is_due(self) -> bool:
        self._left -= 1
        if self._left > 0:
            return False
        self._blow = None
        return True


class FusedSession(SqlSession):
    """A real session, whose transactions may end in a way that the fuse decides."""

    def __init__(self, app: "FusedApp", fuse: Fuse) -> None:
        super().__init__(app._database)
        begin = self.connection.transaction

        @contextmanager
        def transaction() -> Iterator[None]:
            fuse.at_begin()
            with begin():
                yield
                fuse.at_commit("before")
            fuse.at_commit("after")

        self.connection.transaction = transaction  # type: ignore[method-assign]
        self._fuse = fuse

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        super().check_epoch(checkpoint)
        self._fuse.at_checked()


class FusedApp(App):
    """An app whose runners work through fused sessions."""

    fuse: Fuse | None = None

    def _open_session(self) -> SqlSession:
        self._prepare()
        assert self.fuse is not None
        return FusedSession(self, self.fuse)


@dataclass(frozen=True, slots=True)
class Found:
    """What the tables say, as far as it is right."""

    position: int
    head: int
    lanes: dict[int, str]
    """Each event's lane, by its position."""
    applied: list[int]
    """In the order in which they were applied, within each lane."""
    statuses: dict[int, str]
    """What is in the queue, by position."""
    due_at: dict[str, datetime | None]
    """The closed lanes, and when they are to be tried."""
    state: str
    unclean_ends: int
    mark_position: int | None

    @property
    def outstanding(self) -> list[int]:
        return sorted(p for p, status in self.statuses.items() if status in OUTSTANDING)

    def with_status(self, status: str) -> list[int]:
        return sorted(p for p, found in self.statuses.items() if found == status)


def check_lanes(
    url: str, kind: Kind, *, now: datetime | None = None, purged: Collection[int] = ()
) -> Found:
    """Asserts everything that must hold at every moment, in one snapshot.

    `now`: what the projection's clock shows; None where it goes on by itself. `purged`: events
    that were deleted from the queue after they had been skipped or resolved.
    """
    return snapshot(url, lambda query: _check(query, kind, now, frozenset(purged)))


def _check(query: Query, kind: Kind, now: datetime | None, purged: frozenset[int]) -> Found:
    lanes = read_lanes(query, kind)
    head = max(lanes, default=0)
    checkpoints = query(
        "SELECT position, events_processed, state, unclean_ends, mark_position"
        f" FROM holdfast_checkpoint WHERE projection = '{kind}'"
    )
    position, processed, state, unclean_ends, mark = (
        checkpoints[0] if checkpoints else (0, 0, "stopped", 0, None)
    )
    applied = read_applied(query, kind)
    order = [p for positions in applied.values() for p in positions]
    queue = {
        at: (lane, status, _moment(next_attempt_at))
        for at, lane, status, next_attempt_at in query(
            "SELECT position, lane, status, next_attempt_at"
            f" FROM holdfast_queue WHERE projection = '{kind}'"
        )
    }
    found = Found(
        position=position,
        head=head,
        lanes=lanes,
        applied=order,
        statuses={at: status for at, (_, status, _) in queue.items()},
        due_at={
            lane: _moment(due_at)
            for lane, due_at in query(
                f"SELECT lane, due_at FROM holdfast_lane WHERE projection = '{kind}'"
            )
        },
        state=state,
        unclean_ends=unclean_ends,
        mark_position=mark,
    )

    doubled = sorted({p for p in order if order.count(p) > 1})
    assert not doubled, f"applied more than once: {doubled}; {found}"
    for lane, positions in applied.items():
        assert positions == sorted(positions), f"lane {lane!r} is out of order: {positions}"
        strangers = [p for p in positions if lanes.get(p) != lane]
        assert not strangers, f"lane {lane!r} has other lanes' events: {strangers}"
    assert processed == len(order), f"{processed} events are counted, not {len(order)}; {found}"

    ahead = [p for p in order if p > position]
    assert not ahead, f"applied beyond the checkpoint at {position}: {ahead}"
    for at in lanes:
        places = [at in set(order), at in queue, at in purged]
        if at <= position:
            assert any(places), f"the event at {at} is lost; {found}"
        assert sum(places) <= 1, f"the event at {at} is in {places} (rows, queue, purged); {found}"

    _check_closed(query, kind, queue, applied, now, found)
    return found


def _check_closed(
    query: Query,
    kind: Kind,
    queue: dict[int, tuple[str, str, datetime | None]],
    applied: dict[str, list[int]],
    now: datetime | None,
    found: Found,
) -> None:
    """The lanes' rows say what the queue holds, and nothing has passed a head."""
    rows = {
        lane: (events, _moment(due_at))
        for lane, events, due_at in query(
            f"SELECT lane, events, due_at FROM holdfast_lane WHERE projection = '{kind}'"
        )
    }
    waiting: dict[str, list[int]] = {}
    for at in sorted(queue):
        lane, status, _ = queue[at]
        assert lane == found.lanes[at], f"the event at {at} waits in lane {lane!r}; {found}"
        if status in OUTSTANDING:
            waiting.setdefault(lane, []).append(at)
    for lane, positions in waiting.items():
        head = positions[0]
        passed = [p for p in applied.get(lane, []) if p > head]
        assert not passed, f"{passed} passed the head {head} of lane {lane!r}; {found}"
        assert lane in rows, f"lane {lane!r} is open, and {positions} wait in it; {found}"
        events, due_at = rows[lane]
        assert events == len(positions), f"lane {lane!r} counts {events}, not {positions}; {found}"
        _, status, next_attempt_at = queue[head]
        told = f"lane {lane!r}: due {due_at}, head {head} {status} {next_attempt_at}; {found}"
        if status == "dead":
            assert due_at is None, told
        elif status == "failed" and next_attempt_at is not None:
            assert due_at == next_attempt_at, told
        else:
            assert due_at is not None, told
            assert now is None or due_at <= now, told
    for lane in rows.keys() - waiting.keys():
        # A drain that did not look further leaves the lane due; the next one opens it.
        due_at = rows[lane][1]
        assert due_at is not None, f"lane {lane!r} is closed for ever, and empty; {found}"
        assert now is None or due_at <= now, f"lane {lane!r} is closed, and empty; {found}"


def check_all_done(url: str, kind: Kind, *, purged: Collection[int] = ()) -> Found:
    """Asserts that every event is applied, skipped or resolved, and that all lanes are open."""
    found = check_lanes(url, kind, purged=purged)
    assert found.position == found.head, found
    assert not found.outstanding, found
    closed = snapshot(
        url, lambda query: query(f"SELECT lane FROM holdfast_lane WHERE projection = '{kind}'")
    )
    assert not closed, f"{closed} are closed, and nothing waits; {found}"
    return found


def take_lease(url: str, take: Callable[[], object] | None = None) -> None:
    """Takes the lease from whoever holds it, as an accident would, or as `take` does.

    Returns when it is free: PostgreSQL ends a connection in its own time.
    """
    (take or (lambda: lose_leases(url)))()
    if url.startswith("postgresql"):
        wait_until(lambda: not snapshot(url, _leases), 30, "the lease to be free")


def _leases(query: Query) -> list[tuple[Any, ...]]:
    return query(
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
        " AND classid = 'holdfast_checkpoint'::regclass::oid"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )


def read_lanes(query: Query, kind: Kind) -> dict[int, str]:
    rows = query(
        "SELECT position, stream, CAST(data AS text) FROM holdfast_event ORDER BY position"
    )
    return {at: json.loads(data)["row"] if kind == "keyed" else s for at, s, data in rows}


def read_applied(query: Query, kind: Kind) -> dict[str, list[int]]:
    if not query(f"SELECT name FROM holdfast_table WHERE name = '{kind}'"):
        return {}
    if kind == "noted":
        lines: dict[str, list[int]] = {}
        for lane, position in query("SELECT lane, position FROM noted ORDER BY entry"):
            lines.setdefault(lane, []).append(position)
        counts: dict[str, int] = dict(query("SELECT lane, n FROM noted_count"))
        assert counts == {lane: len(positions) for lane, positions in lines.items()}
        return lines
    rows = query(f"SELECT name, count, CAST(steps AS text), _position FROM {kind}")
    trails: dict[str, list[int]] = {}
    for name, count, text, position in rows:
        trails[name] = json.loads(text)
        assert count == len(trails[name]), f"row {name!r} counts {count}: {trails[name]}"
        assert position == max(trails[name]), f"row {name!r} is at {position}: {trails[name]}"
    return trails


def _moment(value: Any) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else value
