"""Which lane an event belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.core.errors import ProjectionFaulted
from holdfast.core.event import Event
from holdfast.core.policy import (
    Park,
    Policy,
)
from holdfast.core.projection import Projection, TableProjection, Tx, on
from holdfast.core.queue import QueueSelection
from holdfast.testing.contracts.failing import (
    FailingSums,
    Poison,
    Sum,
    shown_items,
)
from holdfast.testing.contracts.samples import (
    Counted,
    eventually,
)


class LaneContract(FailingSums):
    """Part of the contract about failing events."""

    def test_the_lane_is_the_row_where_the_key_is_not_the_stream(self, app: App) -> None:
        bad = {11}

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n in bad:
                    raise ValueError(f"no {event.data.n}, please")

        app.journal.append("x", [Counted(n) for n in (1, 2, 11, 12, 21)])
        app.journal.append("y", [Counted(n) for n in (31, 22)])
        app.catch_up()
        assert self.seen(app) == {"1": [1], "2": [2, 12, 22]}
        bad.clear()
        self.requeue_all(app)
        assert self.seen(app) == {"1": [1, 11, 21, 31], "2": [2, 12, 22]}

    def test_an_event_whose_row_is_not_known_holds_its_stream(self, app: App) -> None:
        known = False

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                if event.data.n == 11 and not known:
                    raise ValueError("whose?")
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"

        app.journal.append("x", [Counted(n) for n in (1, 11, 21)])
        app.journal.append("y", [Counted(31)])
        app.catch_up()
        assert self.seen(app) == {"1": [1, 31]}
        assert shown_items(app) == [("dead", "x", 11, 1), ("pending", "x", 21, 0)]
        known = True
        self.requeue_all(app)
        # Their row has gone on with another stream: late is not lost.
        assert self.seen(app) == {"1": [1, 31, 11, 21]}
        self.append(app, 41)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 31, 11, 21, 41]}

    def test_a_mended_event_waits_for_the_lane_it_belongs_to(self, app: App) -> None:
        known, bad = False, {1}

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                if event.data.n == 11 and not known:
                    raise ValueError("whose?")
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"
                if event.data.n in bad:
                    raise ValueError(f"no {event.data.n}, please")

        app.journal.append("x", [Counted(1)])
        app.journal.append("y", [Counted(11)])
        app.catch_up()
        known = True
        app.queue.requeue(QueueSelection(lane="y"), by="me")
        app.catch_up()
        assert self.seen(app) == {}
        bad.clear()
        app.queue.requeue(QueueSelection(lane="1"), by="me")
        with app.running():
            eventually(lambda: self.seen(app) == {"1": [1, 11]})

    @pytest.mark.parametrize("lane", [None, 17, "", "x" * 513])
    def test_a_lane_that_is_none_is_a_fault(self, app: App, lane: Any) -> None:
        wrong = lane

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            def lane(self, event: Event[Any]) -> str:
                return wrong  # type: ignore[no-any-return]

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                raise ValueError("no")

        self.append(app, 1)
        with pytest.raises(ProjectionFaulted, match=r"lane\(\) returned"):
            app.catch_up()

    def test_a_projection_may_name_its_lanes(self, app: App) -> None:
        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            def lane(self, event: Event[Any]) -> str:
                return f"tens {event.data.n // 10}"

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n == 11:
                    raise ValueError("no 11, please")
                tx.execute(f"INSERT INTO sums VALUES ('{event.stream}', '{event.data.n}')")

        self.append(app, 1, 11, 12, 21)
        app.catch_up()
        assert self.seen(app) == {"1": [1, 21]}
        assert [lane for _, lane, _, _ in shown_items(app)] == ["tens 1", "tens 1"]

    def test_every_other_event_fails(
        self, app: App, poison: Poison, register: Callable[..., None]
    ) -> None:
        register(Policy(on_error=Park()))
        poison.bad = {n for n in range(60) if n % 2}
        self.append(app, *range(60))
        app.catch_up()
        assert self.seen(app) == {str(n): list(range(n, 60, 10)) for n in range(0, 10, 2)}
        assert len(app.queue.list()) == 30
        poison.bad = set()
        self.requeue_all(app)
        assert self.seen(app) == {str(n): list(range(n, 60, 10)) for n in range(10)}
