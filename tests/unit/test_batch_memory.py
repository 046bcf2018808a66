"""A batch that is folded keeps its rows, and not its events."""

import tracemalloc
from dataclasses import dataclass

from holdfast import App, Event, Policy, Skip, TableProjection, on

EVENTS = 20_000
TEXT = "x" * 1_000


@dataclass
class Noted:
    text: str


@dataclass
class Count:
    stream: str
    events: int = 0


class Counts(TableProjection[Count]):
    @on(Noted)
    def noted(self, row: Count, event: Event[Noted]) -> None:
        if not event.data.text:
            raise ValueError("nothing is noted")
        row.events += 1


def test_an_event_that_failed_does_not_keep_those_behind_it() -> None:
    with App("sqlite://") as app:
        app.projection(policy=Policy(on_error=Skip()))(Counts)
        app.journal.append("a", [Noted("")])
        for _ in range(0, EVENTS, 1_000):
            app.journal.append("b", [Noted(TEXT)] * 1_000)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            app.catch_up()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak - before < EVENTS * len(TEXT) / 4
