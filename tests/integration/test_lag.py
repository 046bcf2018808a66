"""Lag: the age of what holdfast still has to apply; what waits for a person is another number."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from holdfast import (
    App,
    Backoff,
    ConfigError,
    Event,
    Fatal,
    NewEvent,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    ProjectionStatus,
    Retry,
    SqlProjection,
    Tx,
    on,
)
from holdfast.metrics import catalogue
from holdfast.metrics.gauges import measure
from holdfast.testing import FixedClock
from tests.contracts.samples import Counted, execute
from tests.support.postgres import wait_until

LATER = Backoff(max_attempts=9, delay_seconds=3600, max_delay_seconds=3600)
KINDS: dict[str, dict[str, Any]] = {"log": {}, "shards": {"shards": 2}}


class Bench:
    """An app whose clock stands still, with a projection that fails at negative numbers."""

    def __init__(self, url: str) -> None:
        self.clock = FixedClock(datetime.now(UTC))  # A server's clock says what is due.
        self.app = App(url, clock=self.clock)

    def register(self, **settings: Any) -> None:
        @self.app.projection(name="sums", **settings)
        class _(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                if event.data.n < 0:
                    raise ValueError("negative")

    def append(self, stream: str, *events: Any) -> None:
        self.app.journal.append(stream, list(events))

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def status(self, feed: str | None = None) -> ProjectionStatus:
        found = [s for s in self.app.status() if s.projection == "sums"]
        return max((s for s in found if feed in (None, s.feed)), key=lambda s: s.lag_seconds)

    def numbers(self) -> tuple[float, int, float]:
        """Lag, stuck events and their age, which all that tell of them agree on."""
        status = self.status()
        told = (status.lag_seconds, status.stuck_events, status.stuck_seconds)
        values = measure(self.app)
        labels = (status.projection, status.feed)
        metrics = (catalogue.LAG_TIME, catalogue.STUCK_EVENTS, catalogue.STUCK_TIME)
        assert tuple(values[metric][labels] for metric in metrics) == told
        counted = self.app.lag("sums")
        assert (counted.seconds, counted.stuck_events, counted.stuck_seconds) == told
        for report in self.app.outbox.report():
            assert (report.lag_seconds, report.stuck_events, report.stuck_seconds) == told
        for reason in self.app.explain("sums"):
            if reason.kind in ("behind", "nothing_to_do"):
                assert reason.fields["lag_seconds"] == told[0]
        return told


@pytest.fixture
def bench(quick_url: str) -> Iterator[Bench]:
    bench = Bench(quick_url)
    with closing(bench.app):
        yield bench


def test_an_event_that_is_not_reached_or_tried_again_is_lag(bench: Bench) -> None:
    bench.register(policy=Policy(on_error=Retry(LATER)))
    bench.append("a", Counted(1))
    bench.app.catch_up()
    bench.append("a", Counted(-2))
    bench.later(5)
    assert bench.numbers() == (5, 0, 0)
    supervisor = bench.app.supervise()
    supervisor.start()
    try:
        wait_until(lambda: bench.status().last_error is not None, 30, "the failure")
        bench.later(5)
        assert bench.numbers() == (10, 0, 0)
    finally:
        supervisor.stop()
        assert supervisor.join(30)


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_that_no_handler_takes_is_no_lag(bench: Bench, kind: str) -> None:
    bench.register(**KINDS[kind])
    bench.append("slow", Counted(1))
    bench.app.catch_up()
    bench.append("slow", *[NewEvent({}, type="Unknown")] * 3)
    bench.append("fast", *[NewEvent({}, type="Unknown")] * 600)
    bench.later(7)
    assert bench.status().lag_seconds == 0
    bench.append("slow", Counted(2))
    bench.later(1)
    found = {s.feed: s.lag_seconds for s in bench.app.status()}
    assert sorted(found.values()) == ([0, 1] if kind == "shards" else [1])
    assert bench.app.lag("sums").events == 1


@pytest.mark.parametrize("delivery", ["log", "outbox"])
def test_what_waits_for_a_person_is_stuck_and_no_lag(bench: Bench, delivery: Any) -> None:
    bench.register(delivery=delivery, policy=Policy(on_error=Park()))
    bench.append("a", Counted(-1), Counted(2))
    bench.later(5)
    bench.app.catch_up()
    assert bench.numbers() == (0, 2, 5)
    bench.later(5)
    bench.append("a", Counted(3))
    bench.append("b", Counted(4))
    bench.later(1)
    assert bench.numbers() == (1, 3 if delivery == "outbox" else 2, 11)
    bench.app.catch_up()
    assert bench.numbers() == (0, 3, 11)


@pytest.mark.parametrize("delivery", ["log", "outbox"])
def test_what_is_due_in_the_queue_is_lag(bench: Bench, delivery: Any) -> None:
    decision = Park(retry=LATER) if delivery == "log" else Retry(LATER)
    bench.register(delivery=delivery, policy=Policy(on_error=decision))
    bench.append("a", Counted(-1), Counted(2))
    bench.app.catch_up()
    bench.later(5)
    assert bench.numbers() == (5, 0, 0)


def test_what_is_to_be_backfilled_is_lag(bench: Bench) -> None:
    bench.append("a", NewEvent({}, type="Unknown"))
    bench.later(1)
    bench.append("a", Counted(1))
    bench.later(5)
    bench.register(delivery="outbox")
    bench.app.migrate()
    assert bench.numbers() == (5, 0, 0)
    bench.app.catch_up()
    assert bench.numbers() == (0, 0, 0)


def test_the_lag_of_some_event_types(bench: Bench) -> None:
    @bench.app.projection(name="sums", policy=Policy(on_error=Park()))
    class _(Projection):
        @on(Counted)
        @on("Other")
        def counted(self, event: Event[Any], tx: Tx) -> None:
            raise ValueError("no")

    bench.append("a", Counted(1), NewEvent({}, type="Other"))
    bench.app.catch_up()
    bench.later(2)
    bench.append("b", NewEvent({}, type="Other"), NewEvent({}, type="Unknown"))
    bench.later(3)
    lag = bench.app.lag("sums", event_types=[Counted])
    assert (lag.events, lag.seconds, lag.stuck_events, lag.stuck_seconds) == (0, 0, 1, 5)
    lag = bench.app.lag("sums", event_types=["Other", "Unknown"])
    assert (lag.events, lag.seconds, lag.stuck_events, lag.stuck_seconds) == (1, 3, 1, 5)


def test_a_sql_projection_has_the_types_that_it_names(bench: Bench) -> None:
    @bench.app.projection(name="sums")
    class _(SqlProjection):
        events = (Counted,)
        tables: ClassVar = {"sums": "CREATE TABLE sums (n bigint)"}
        sql = "INSERT INTO sums SELECT position FROM batch"

    bench.append("a", NewEvent({}, type="Unknown"))
    bench.later(4)
    assert bench.app.lag("sums").seconds == 0
    bench.append("a", Counted(1))
    bench.later(1)
    assert bench.app.lag("sums").seconds == 1


def test_a_strict_projection_stops_at_types_that_it_does_not_know(bench: Bench) -> None:
    bench.register(strict=True, policy=Policy(on_error=Fatal()))
    bench.append("a", NewEvent({}, type="Unknown"))
    with pytest.raises(ProjectionFaulted):
        bench.app.catch_up()
    bench.later(4)
    assert bench.numbers() == (4, 0, 0)
    execute(bench.app, "UPDATE holdfast_checkpoint SET position = 1")
    assert bench.numbers() == (0, 0, 0)


def test_event_types_are_of_one_projection(bench: Bench) -> None:
    with pytest.raises(ConfigError):
        bench.app.lag("unknown")
