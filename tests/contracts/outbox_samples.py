"""What the contracts of outbox delivery share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.projection import Projection, TableProjection, Tx, on
from holdfast.runtime.store.queue_items import QueueSelection
from tests.contracts.samples import Counted, fetch

ALL = QueueSelection()
AT_ONCE = Backoff(max_attempts=3, delay_seconds=0.001, max_delay_seconds=0.001, jitter=0.0)


@dataclass
class Other:
    n: int


@dataclass
class Seen:
    """What was applied to a stream, in order."""

    stream: str
    seen: str = ""


SUMS = "CREATE TABLE sums (stream text, seen text, place bigint)"


def note(tx: Tx, event: Event[Counted], mark: str) -> None:
    """A row an event, with its place among those of its stream that are there."""
    tx.execute(
        f"INSERT INTO sums SELECT {mark}, {mark}, count(*) FROM sums WHERE stream = {mark}",
        (event.stream, f" {event.data.n}", event.stream),
    )


class OutboxSample:
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    placeholder: ClassVar[str]

    @pytest.fixture
    def bad(self) -> set[int]:
        """The numbers at which handlers fail."""
        return set()

    @pytest.fixture(params=["table", "handler"])
    def register(
        self, app: App, bad: set[int], request: pytest.FixtureRequest
    ) -> Callable[..., None]:
        """Registers the projection `sums` of a kind, delivered by the queue."""
        mark = self.placeholder

        def check(n: int) -> None:
            if n in bad:
                raise ValueError(f"no {n}, please")

        def register(**settings: Any) -> None:
            if request.param == "table":

                @app.projection(name="sums", delivery="outbox", **settings)
                class Sums(TableProjection[Seen]):
                    @on(Counted)
                    def counted(self, row: Seen, event: Event[Counted]) -> None:
                        row.seen += f" {event.data.n}"
                        check(event.data.n)
            else:

                @app.projection(name="sums", delivery="outbox", **settings)
                class BySql(Projection):
                    tables: ClassVar = {"sums": SUMS}

                    @on(Counted)
                    def counted(self, event: Event[Counted], tx: Tx) -> None:
                        note(tx, event, mark)
                        check(event.data.n)

        return register

    def seen(self, app: App) -> dict[str, list[int]]:
        """The numbers that were applied to each stream, in order."""
        found: dict[str, list[int]] = {}
        rows = fetch(
            app, "SELECT * FROM sums"
        )  # The third column is a place, or the last position.
        for stream, text, _ in sorted(rows, key=lambda row: row[2]):
            found.setdefault(stream, []).extend(int(n) for n in text.split())
        return found

    def check_empty(self, app: App) -> None:
        """Nothing waits, and no lane is left behind."""
        assert fetch(app, "SELECT count(*) FROM holdfast_queue") == [(0,)]
        assert fetch(app, "SELECT count(*) FROM holdfast_lane") == [(0,)]

    def items(self, app: App) -> list[tuple[str, str, int]]:
        """Lane, status and attempts of what is in the queue."""
        return [(item.lane, item.status, item.attempts) for item in app.queue.list()]


class Same:
    """The same app, where nobody else can reach its database."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __enter__(self) -> App:
        return self._app

    def __exit__(self, *exc: object) -> None:
        pass
