"""An append inside a handler joins its transaction, or is refused: it never hangs or doubles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import App, AppendError, Event, Projection, ProjectionFaulted, Tx, on


@dataclass
class Ordered:
    item: str


@dataclass
class Reserved:
    item: str


@pytest.mark.parametrize("form", ["append", "append_async", "append in async"])
@pytest.mark.parametrize("url", ["sqlite", "memory", "postgres"])
def test_without_the_transaction_it_is_refused_in_every_batch(
    url: str, form: str, request: pytest.FixtureRequest
) -> None:
    """Also in a later batch than the first, on the same event loop."""
    url = "sqlite:///:memory:" if url == "memory" else request.getfixturevalue(f"{url}_url")
    handled: list[int] = []
    with App(url) as app:

        class Sync(Projection):
            @on(Ordered)
            def ordered(self, event: Event[Ordered], tx: Tx) -> None:
                handled.append(event.position)
                if event.data.item == "tea":
                    app.journal.append("stock", [Reserved("tea")])

        class Async(Projection):
            @on(Ordered)
            async def ordered(self, event: Event[Ordered], tx: Tx) -> None:
                handled.append(event.position)
                if event.data.item != "tea":
                    return
                if form == "append_async":
                    await app.journal.append_async("stock", [Reserved("tea")])
                else:
                    app.journal.append("stock", [Reserved("tea")])

        app.projection(name="orders")(Sync if form == "append" else Async)
        with app.running() as running:
            for item in ("milk", "milk", "tea"):
                position = app.journal.append("order", [Ordered(item)]).position
                if item == "milk":
                    app.wait_for("orders", position, timeout_seconds=60)
            with pytest.raises(ProjectionFaulted):
                app.wait_for("orders", position, timeout_seconds=60)
            assert "pass connection=tx" in running.faulted["orders"]
        assert [event.stream for event in app.journal.read()] == ["order"] * 3
    assert handled[:2] == [1, 2]


def test_another_app_is_another_matter(sqlite_url: str) -> None:
    """What is appended elsewhere is a side effect, like any other call."""
    with App(sqlite_url) as app, App("sqlite:///:memory:") as elsewhere:

        @app.projection
        class Orders(Projection):
            @on("*")
            def ordered(self, event: Event[Any], tx: Tx) -> None:
                elsewhere.journal.append("copy", [Reserved("tea")])

        app.journal.append("order", [Ordered("tea")])
        app.catch_up(timeout_seconds=60)
        assert elsewhere.journal.head() == 1
        with pytest.raises(AppendError):
            elsewhere.journal.append("copy", [])
