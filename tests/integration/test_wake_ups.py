"""Readers that would sleep for an hour are woken by appends, whatever made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast import App, Event, Poll, Projection, TableProjection, Tx, on

SLEEPY = Poll(interval_seconds=3600, empty_backoff_seconds=3600)


@dataclass
class Ordered:
    item: str


@dataclass
class Reserved:
    item: str


@dataclass
class Stock:
    stream: str
    reserved: int = 0


class Stocks(TableProjection[Stock]):
    @on(Reserved)
    def reserved(self, row: Stock, event: Event[Reserved]) -> None:
        row.reserved += 1


def test_an_append_wakes_a_projection_of_the_same_process(store_url: str) -> None:
    with App(store_url) as app:
        app.projection(poll=SLEEPY)(Stocks)
        with app.running():
            for _ in range(3):
                position = app.journal.append("stock-1", [Reserved("tea")]).position
                app.wait_for(Stocks, position, timeout_seconds=60)


def test_an_append_wakes_a_projection_through_another_app(store_url: str) -> None:
    """Another App shares nothing with this one but the database, as another process would."""
    with App(store_url) as app, App(store_url) as writer:
        app.projection(poll=SLEEPY)(Stocks)
        with app.running():
            for _ in range(3):
                position = writer.journal.append("stock-1", [Reserved("tea")]).position
                app.wait_for(Stocks, position, timeout_seconds=60)


def test_an_append_inside_a_handler_wakes_the_others(store_url: str) -> None:
    with App(store_url) as app:

        @app.projection
        class Reservations(Projection):
            @on(Ordered)
            def ordered(self, event: Event[Ordered], tx: Tx) -> None:
                app.journal.append("stock-1", [Reserved(event.data.item)], connection=tx)

        app.projection(poll=SLEEPY)(Stocks)
        app.projection(poll=SLEEPY, name="seen")(_Seen)
        with app.running():
            first = app.journal.append("order-1", [Ordered("tea")]).position
            app.wait_for("seen", first + 1, timeout_seconds=60)
            app.wait_for(Stocks, first + 1, timeout_seconds=60)


class _Seen(Projection):
    @on("*")
    def seen(self, event: Event[Any], tx: Tx) -> None:
        """Passing it is all."""
