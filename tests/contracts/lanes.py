"""Which lane an event belongs to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.event import Event
from holdfast.model.policy import Park, Policy
from holdfast.model.projection import DELETE, Projection, TableProjection, Tx, on
from holdfast.runtime.store.queue_items import QueueSelection
from tests.contracts.failing import FailingSums, Poison, Sum, shown_items
from tests.contracts.samples import Counted, status_of


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

    @pytest.mark.parametrize("kind", ["table", "handler"])
    @pytest.mark.parametrize("way", ["park", "add"])
    def test_a_lane_of_any_length(self, app: App, kind: str, way: str) -> None:
        """Longer than an index can hold, and not to be compressed."""
        bad = {11}
        texts = Random(7)
        long = "".join(chr(texts.randrange(0x10000, 0x20000)) for _ in range(3_000))
        policy = Policy(on_error=Park()) if way == "park" else Policy()
        seen: list[int] = []

        def lane(event: Event[Any]) -> str:
            return f"{long} {event.data.n % 10}"

        def count(event: Event[Counted]) -> None:
            if event.data.n in bad:
                raise ValueError(f"no {event.data.n}, please")
            seen.append(event.data.n)

        if kind == "table":

            @app.projection(name="sums", policy=policy)
            class Sums(TableProjection[Sum]):
                def key(self, event: Event[Any]) -> str:
                    return lane(event)

                @on(Counted)
                def counted(self, row: Sum, event: Event[Counted]) -> Any:
                    count(event)
                    return DELETE  # A server's own index on the table can't hold the key.
        else:

            @app.projection(name="sums", policy=policy)
            class Handled(Projection):
                def lane(self, event: Event[Any]) -> str:
                    return lane(event)

                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    count(event)

        app.journal.append("x", [Counted(n) for n in (1, 2, 11, 12, 21)])
        if way == "add":
            with pytest.raises(ProjectionFaulted):
                app.catch_up()
            app.queue.add("sums", 3, by="me")
        app.catch_up()
        dead, pending = app.queue.list(QueueSelection(lane=f"{long} 1"))
        assert (dead.status, pending.status) == ("dead", "pending")
        assert len(dead.lane) == 512
        assert dead.lane.startswith(long[:400])
        assert sorted(set(seen)) == [1, 2, 12]
        bad.clear()
        self.requeue_all(app)
        assert sorted(set(seen)) == [1, 2, 11, 12, 21]
        assert seen.index(11) < seen.index(21)

    @pytest.mark.parametrize("way", ["requeue", "resolve"])
    def test_an_event_whose_row_is_not_known_holds_its_stream(self, app: App, way: str) -> None:
        """What comes after it in its stream waits, in its own lane, and so do other streams' events
        for the same rows: when it is mended, every row sees its events in order."""
        known = False

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            def key(self, event: Event[Any]) -> str:
                if event.data.n in (11, 42) and not known:
                    raise ValueError("whose?")
                return str(event.data.n % 10)

            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.seen += f" {event.data.n}"

        app.journal.append("x", [Counted(n) for n in (1, 11, 21, 32, 42)])
        app.journal.append("y", [Counted(n) for n in (31, 52, 3)])
        app.catch_up()
        assert self.seen(app) == {"1": [1], "3": [3]}
        assert shown_items(app) == [
            ("dead", "(unknown) x", 11, 1),
            ("pending", "1", 21, 0),
            ("pending", "2", 32, 0),
            ("pending", "(unknown) x", 42, 0),
            ("pending", "1", 31, 0),
            ("pending", "2", 52, 0),
        ]
        known = True
        if way == "requeue":
            self.requeue_all(app)
            assert self.seen(app) == {"1": [1, 11, 21, 31], "2": [32, 42, 52], "3": [3]}
        else:
            app.queue.resolve(QueueSelection(status="dead"), by="me")
            app.catch_up()
            assert self.seen(app) == {"1": [1, 21, 31], "2": [32, 42, 52], "3": [3]}
        assert status_of(app, "sums").closed_lanes == 0

    def test_a_lane_may_have_a_stream_s_name(self, app: App) -> None:
        """A closed lane holds nothing but its own events, whatever their stream is called."""
        bad = {1}

        @app.projection(policy=Policy(on_error=Park()))
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (stream text, seen text)"}

            def lane(self, event: Event[Any]) -> str:
                return f"{event.data.n % 10}"

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n in bad:
                    raise ValueError("no")
                lane = self.lane(event)
                tx.execute(f"INSERT INTO sums VALUES ('{lane}', '{event.data.n}')")

        app.journal.append("1", [Counted(1), Counted(2)])
        app.journal.append("2", [Counted(12), Counted(11)])
        app.catch_up()
        assert self.seen(app) == {"2": [2, 12]}
        bad.clear()
        self.requeue_all(app)
        assert self.seen(app) == {"1": [1, 11], "2": [2, 12]}

    @pytest.mark.parametrize("stream", ["(unknown) x", "x"])
    def test_a_stream_may_be_called_like_an_unknown_lane(self, app: App, stream: str) -> None:
        @app.projection(policy=Policy(on_error=Park()))
        class Sums(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                if event.data.n == 1:
                    raise ValueError("no")
                row.seen += f" {event.data.n}"

        (other,) = {"(unknown) x", "x"} - {stream}
        app.journal.append(stream, [Counted(1)])
        app.journal.append(other, [Counted(2)])
        app.catch_up()
        assert self.seen(app) == {other: [2]}

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
        app.queue.requeue(QueueSelection(lane="(unknown) y"), by="me")
        app.catch_up()
        assert self.seen(app) == {}
        assert shown_items(app) == [("dead", "1", 1, 1), ("pending", "1", 11, 0)]
        bad.clear()
        self.requeue_all(app)
        assert self.seen(app) == {"1": [1, 11]}

    @pytest.mark.parametrize("lane", [None, 17, ""])
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
