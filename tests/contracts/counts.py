"""A projection that counts how often it sees each number, to tell what a failure left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.event import Appended, Event
from holdfast.model.projection import Projection, TableProjection, Tx, on
from tests.contracts.samples import Counted, fetch, status_of

EVENTS = 10
BEFORE = [100, 101, 102]
"""What has been processed before the batch with the failing event."""

Effect = Callable[[int, Any], None]
"""What a handler does beside its work: it gets the event's number, and the row or the tx."""


@dataclass
class Count:
    """How often a number was seen, and a column of each kind that refuses something."""

    n: int
    times: int = 0
    number: int | None = None
    text: str | None = None
    moment: datetime | None = None
    exact: Decimal | None = None
    raw: bytes | None = None
    anything: list[Any] | None = None


class Counting:
    """Registers the projection, and checks what it has counted."""

    placeholder: str

    @pytest.fixture
    def app(self) -> App:
        raise NotImplementedError

    def register(
        self,
        app: App,
        kind: str,
        effect: Effect,
        *,
        name: str = "counts",
        key: Callable[[int], Any] = lambda n: n,
    ) -> None:
        """A projection that counts how often it sees each number."""
        insert = f"INSERT INTO {name} (n) VALUES ({self.placeholder})"
        key_of = key
        if kind == "table":

            @app.projection(name=name)
            class ByRow(TableProjection[Count]):
                def key(self, event: Event[Any]) -> Any:
                    return key_of(event.data.n)

                @on(Counted)
                def counted(self, row: Count, event: Event[Counted]) -> None:
                    row.times += 1
                    effect(event.data.n, row)
        else:

            @app.projection(name=name)
            class BySql(Projection):
                tables = {name: f"CREATE TABLE {name} (n integer, times integer DEFAULT 1)"}

                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    tx.execute(insert, (event.data.n,))
                    effect(event.data.n, tx)

    def counts(self, app: App) -> list[tuple[int, int]]:
        """Each number with how often it was seen."""
        return fetch(app, "SELECT n, sum(times) FROM counts GROUP BY n ORDER BY n")

    def check_fault(self, app: App, appended: Appended, failing: int) -> ProjectionFaulted:
        """Catches up, and checks that it stops at this event with all before it counted once."""
        with pytest.raises(ProjectionFaulted) as caught:
            app.catch_up()
        position = appended.positions[failing]
        assert f"'counts' stopped at position {position}" in str(caught.value)
        assert self.counts(app) == [(n, 1) for n in (*range(failing), *BEFORE)]
        status = status_of(app, "counts")
        assert status.state == "faulted"
        assert status.position == position - 1
        assert status.events_processed == len(BEFORE) + failing
        assert status.last_error is not None
        assert status.last_error.position == position
        assert status.last_error.event_type == "Counted"
        (event,) = app.journal.read_raw(after=position - 1, limit=1)
        assert status.last_error.event_id == event.id
        assert str(event.id) in str(caught.value)
        return caught.value

    def check_mended(self, app: App) -> None:
        """Catches up, and checks that all is counted once and the fault is gone."""
        app.catch_up()
        assert self.counts(app) == [(n, 1) for n in (*range(EVENTS), *BEFORE)]
        status = status_of(app, "counts")
        assert (status.state, status.last_error) == ("stopped", None)
        assert status.events_processed == len(BEFORE) + EVENTS


def append_batch(app: App) -> Appended:
    """What is processed before, and then the batch."""
    app.journal.append("a", [Counted(n) for n in BEFORE])
    app.catch_up()
    return app.journal.append("a", [Counted(n) for n in range(EVENTS)])
