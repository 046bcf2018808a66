"""Statements that a handler does not wait for: they come in order, and fail with their event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.core import handling
from holdfast.core.backoff import Backoff
from holdfast.core.errors import ProjectionFaulted
from holdfast.core.event import Event
from holdfast.core.failure import Failure
from holdfast.core.policy import Decision, Fatal, Park, Policy, Retry, Skip
from holdfast.core.projection import Projection, Tx, on
from holdfast.core.queue import QueueSelection
from holdfast.testing.contracts.samples import Counted, fetch, status_of

EVENTS = 300
"""More than one group of handlers has."""
LANES = 7
ROWS = "CREATE TABLE written (n bigint PRIMARY KEY, note varchar(10) NOT NULL)"
CHAIN = "CREATE TABLE chain (value text)"


class WritingContract:
    """Part of the contract about handlers."""

    placeholder: str

    @pytest.fixture
    def app(self) -> App:
        raise NotImplementedError

    @pytest.fixture(params=[(20, 100), (0, 1000)], ids=["with care", "without care"])
    def care(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without, not even the second event of a batch is waited for."""
        care, unsure = request.param
        monkeypatch.setattr(handling, "CARE_EVENTS", care)
        monkeypatch.setattr(handling, "LARGEST_UNSURE", unsure)

    @pytest.fixture
    def bad(self) -> set[int]:
        """The numbers whose statements fail."""
        return set()

    @pytest.fixture
    def told(self) -> list[int]:
        """The numbers that were called back after their commit."""
        return []

    @pytest.fixture
    def register(self, app: App, bad: set[int], told: list[int], care: None) -> Callable[..., None]:
        """Registers a projection that writes a row an event, after what `first` does."""
        insert = f"INSERT INTO written VALUES ({self.placeholder}, {self.placeholder})"

        def register(
            policy: Policy, first: Callable[[int, Tx], None] | None = None, **settings: Any
        ) -> None:
            class Written(Projection):
                tables: ClassVar = {"written": ROWS}

                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    n = event.data.n
                    if first is not None:
                        first(n, tx)
                    tx.write(insert, (n, None if n in bad else "x"))
                    tx.after_commit(lambda: told.append(n))

            class InLanes(Written):
                def lane(self, event: Event[Counted]) -> str:
                    return str(event.data.n % LANES)

            kind = Written if settings else InLanes
            app.projection(name="written", policy=policy, **settings)(kind)

        return register

    def append(self, app: App, events: int = EVENTS) -> None:
        app.journal.append("a", [Counted(n) for n in range(events)])

    def written(self, app: App) -> list[int]:
        return [row[0] for row in fetch(app, "SELECT n FROM written ORDER BY n")]

    def test_everything_comes_in_order(self, app: App, care: None) -> None:
        p = self.placeholder
        add = f"UPDATE chain SET value = value || CAST({p} AS text) || ' '"

        @app.projection
        class Chain(Projection):
            tables: ClassVar = {"chain": CHAIN}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                n = event.data.n
                if n == 0:
                    tx.write("INSERT INTO chain VALUES ('')")
                tx.write(add, (n,))
                match n % 5:
                    case 1:
                        assert tx.execute(add, (n,)) == 1
                    case 2:
                        tx.executemany(add, [(n,), (n + 1,)])
                    case 3:
                        tx.connection.execute(add, (n,))
                tx.write(add, (n + 2,))

        self.append(app)
        app.catch_up()
        ((value,),) = fetch(app, "SELECT value FROM chain")
        between = {1: [0], 2: [0, 1], 3: [0]}
        assert [int(n) for n in value.split()] == [
            n + step for n in range(EVENTS) for step in (0, *between.get(n % 5, []), 2)
        ]

    @pytest.mark.parametrize("way", ["fetch", "connection", "thread", "await"])
    def test_whoever_looks_sees_what_is_written(self, app: App, care: None, way: str) -> None:
        count = "SELECT count(*) FROM written"
        insert = f"INSERT INTO written VALUES ({self.placeholder}, 'x')"
        seen: list[int] = []

        @app.projection
        class Written(Projection):
            tables: ClassVar = {"written": ROWS}

            @on(Counted)
            async def counted(self, event: Event[Counted], tx: Tx) -> None:
                if way == "await":
                    await asyncio.sleep(0)
                tx.write(insert, (event.data.n,))
                match way:
                    case "connection":
                        connection = tx.connection
                        tx.write(insert, (-event.data.n - 1,))
                        rows = connection.execute(count).fetchall()
                    case "thread":
                        found: list[Any] = []
                        thread = Thread(target=lambda: found.extend(tx.fetch(count)))
                        if self.has_one_thread:
                            thread.run()
                        else:
                            thread.start()
                            thread.join()
                        rows = found
                    case _:
                        rows = tx.fetch(count)
                seen.append(rows[0][0])

            has_one_thread = self.placeholder == "?"  # SQLite's connections stay in theirs.

        self.append(app, 50)
        app.catch_up()
        each = 2 if way == "connection" else 1
        assert seen == [each * (n + 1) for n in range(50)]

    @pytest.mark.parametrize(
        "numbers",
        [{0}, {1}, {EVENTS - 1}, {150}, {30, 31, 32}, {*range(5, EVENTS, 10)}],
        ids=["first", "second", "last", "middle", "three", "tenth"],
    )
    @pytest.mark.parametrize("decision", [Skip(), Park()], ids=["skip", "park"])
    def test_exactly_what_failed_goes_to_the_policy(
        self,
        app: App,
        bad: set[int],
        told: list[int],
        register: Callable[..., None],
        numbers: set[int],
        decision: Any,
    ) -> None:
        register(Policy(on_error=decision))
        bad |= numbers
        self.append(app)
        app.catch_up()
        if isinstance(decision, Park):
            lanes = {n % LANES: min(m for m in bad if m % LANES == n % LANES) for n in bad}
            left = {n for n in range(EVENTS) if n >= lanes.get(n % LANES, EVENTS)}
            failed = set(lanes.values())
        else:
            left = failed = set(bad)
        good = [n for n in range(EVENTS) if n not in left]
        assert self.written(app) == good
        assert told == good
        items = app.queue.list(limit=EVENTS)
        assert {item.position - 1 for item in items} == left
        assert {item.position - 1 for item in items if item.attempts} == failed
        assert {item.attempts for item in items} <= {0, 1}
        assert {item.error_type for item in items} <= {None, "NotNullViolation", "IntegrityError"}

    def test_a_fatal_event_stops_it_with_everything_before(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Fatal()))
        bad.add(140)
        self.append(app)
        for _ in range(2):
            with pytest.raises(ProjectionFaulted, match="at position 141 on 'Counted' event"):
                app.catch_up()
            assert self.written(app) == list(range(140))
        bad.clear()
        app.catch_up()
        assert self.written(app) == list(range(EVENTS))
        assert status_of(app, "written").events_processed == EVENTS

    def test_it_is_tried_again(
        self, app: App, bad: set[int], told: list[int], register: Callable[..., None]
    ) -> None:
        def heal(failure: Failure) -> Decision:
            seen.append((failure.attempt, failure.position))
            if failure.attempt == 2:
                bad.clear()
            return Retry()

        seen: list[tuple[int, int]] = []
        register(Policy(on_error=heal, backoff=Backoff.constant(0.001)))
        bad.add(140)
        self.append(app)
        app.catch_up()
        assert seen == [(1, 141), (2, 141)]
        assert told == self.written(app) == list(range(EVENTS))

    @pytest.mark.parametrize("swallows", [True, False])
    def test_who_finds_another_events_error_is_not_blamed(
        self, app: App, care: None, swallows: bool
    ) -> None:
        """Not even if it swallows the error, or fails because of it."""
        insert = f"INSERT INTO written VALUES ({self.placeholder}, {self.placeholder})"

        @app.projection(policy=Policy(on_error=Skip()))
        class Written(Projection):
            tables: ClassVar = {"written": ROWS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                n = event.data.n
                if n % 3 < 2:
                    tx.write(insert, (n, None if n % 3 == 1 else "x"))
                    return
                try:
                    tx.fetch("SELECT count(*) FROM written")
                except Exception as error:
                    if not swallows:
                        raise KeyError(n) from error

        self.append(app)
        app.catch_up()
        items = app.queue.list(limit=EVENTS)
        assert [item.position - 1 for item in items] == [*range(1, EVENTS, 3)]
        assert self.written(app) == [*range(0, EVENTS, 3)]

    def test_one_fails_by_what_it_raises_and_the_next_by_what_it_writes(
        self, app: App, bad: set[int], told: list[int], register: Callable[..., None]
    ) -> None:
        def first(n: int, _: Tx) -> None:
            if n in (1, 141):
                raise KeyError(n)

        register(Policy(on_error=Skip()), first)
        bad |= {2, 142}
        self.append(app)
        app.catch_up()
        items = app.queue.list(limit=EVENTS)
        lost = [1, 2, 141, 142]
        assert [item.position - 1 for item in items] == lost
        assert told == self.written(app) == [n for n in range(EVENTS) if n not in lost]

    def test_what_a_handler_raises_is_its_own(
        self, app: App, told: list[int], register: Callable[..., None]
    ) -> None:
        def first(n: int, tx: Tx) -> None:
            tx.write(f"INSERT INTO written VALUES ({-n - 1}, 'y')")
            if n % 50 == 49:
                raise KeyError(n)

        register(Policy(on_error=Skip()), first)
        self.append(app)
        app.catch_up()
        good = [n for n in range(EVENTS) if n % 50 != 49]
        assert told == good
        assert self.written(app) == [*(-n - 1 for n in reversed(good)), *good]
        assert {item.error_type for item in app.queue.list(limit=EVENTS)} == {"KeyError"}
        assert {item.position - 1 for item in app.queue.list(limit=EVENTS)} == set(
            range(49, EVENTS, 50)
        )

    @pytest.mark.parametrize("works", [True, False])
    def test_a_fallback_writes_too(
        self, app: App, bad: set[int], register: Callable[..., None], works: bool
    ) -> None:
        def fallback(event: Event[Counted], tx: Tx) -> None:
            note = "'y'" if works else "NULL"
            tx.write(f"INSERT INTO written VALUES ({-event.data.n - 1}, {note})")

        register(Policy(on_error=Skip(), fallback=fallback))
        bad |= {0, 1, 140, 141}
        self.append(app)
        app.catch_up()
        good = [n for n in range(EVENTS) if n not in bad]
        instead = [-142, -141, -2, -1] if works else []
        assert self.written(app) == [*instead, *good]
        assert {i.position - 1 for i in app.queue.list(limit=EVENTS)} == (set() if works else bad)

    def test_what_waits_is_written_in_its_turn(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        bad |= {10, 17, 24, 150}
        self.append(app)
        app.catch_up()
        for rest in ({17, 24, 150}, {24}, set[int]()):
            bad.intersection_update(rest)
            app.queue.requeue(QueueSelection(), by="me", limit=EVENTS)
            app.catch_up()
        assert self.written(app) == list(range(EVENTS))
        assert app.queue.list(limit=EVENTS) == []

    def test_an_outbox_delivers_it(
        self, app: App, bad: set[int], told: list[int], register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()), delivery="outbox")
        bad |= {30, 145}
        for n in range(EVENTS):
            app.journal.append(str(n % 30), [Counted(n)])
        app.catch_up()
        lost = {*range(30, EVENTS, 30), *range(145, EVENTS, 30)}
        assert {item.position - 1 for item in app.queue.list(limit=EVENTS)} == lost
        good = [n for n in range(EVENTS) if n not in lost]
        assert sorted(told) == self.written(app) == good
        bad.clear()
        app.queue.requeue(QueueSelection(), by="me", limit=EVENTS)
        app.catch_up()
        assert self.written(app) == list(range(EVENTS))
