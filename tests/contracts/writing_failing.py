"""Statements that fail after the handler that has written them: exactly their event is blamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.failure import Failure
from holdfast.model.policy import Decision, Fatal, Park, Policy, Retry, Skip
from holdfast.model.projection import Projection, Tx, on
from holdfast.runtime.store.queue_items import QueueSelection
from tests.contracts.samples import Counted, status_of
from tests.contracts.writing_samples import EVENTS, LANES, ROWS, WritingSample


class WritingFailingContract(WritingSample):
    """Part of the contract about handlers."""

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
        self, app: App, groups: None, swallows: bool
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
