"""The clock that stands still."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Backoff, Breaker, NewEvent, Policy, Projection, Retry, on
from holdfast.testing import FixedClock
from tests.support.postgres import wait_until


def test_it_stands_still_until_it_is_advanced() -> None:
    start = datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)
    clock = FixedClock(start)
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic()) == (start, 0.0)
    clock.advance(1.5)
    assert (clock.now(), clock.monotonic()) == (start + timedelta(seconds=1.5), 1.5)
    clock.advance(0)
    assert clock.now() == datetime(2024, 3, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert repr(clock) == "FixedClock(2024-03-01T00:00:00.500000+00:00)"


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
def test_it_never_goes_back(seconds: float) -> None:
    clock = FixedClock()
    with pytest.raises(ValueError, match="can't be advanced"):
        clock.advance(seconds)
    assert clock.monotonic() == 0.0


def test_it_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        FixedClock(datetime(2024, 1, 1))


def test_an_app_goes_by_it() -> None:
    clock = FixedClock()
    with App("sqlite:///:memory:", clock=clock) as app:
        app.journal.append("a", [NewEvent({}, type="First")])
        clock.advance(3_600)
        app.journal.append("a", [NewEvent({}, type="Second")])
        first, second = app.journal.read()
    assert second.recorded_at - first.recorded_at == timedelta(hours=1)
    assert second.recorded_at == clock.now()


def failing_app(clock: FixedClock, tried: list[datetime], **settings: Any) -> App:
    """An app with one event, which fails twice."""
    app = App("sqlite:///:memory:", clock=clock)

    @app.projection(name="failing", **settings)
    class Failing(Projection):
        @on("Credited")
        def credited(self, event: Any, tx: Any) -> None:
            tried.append(clock.now())
            if len(tried) < 3:
                raise ValueError("not yet")

    app.journal.append("a", [NewEvent({}, type="Credited")])
    return app


RETRIES = Policy(on_error=Retry(), backoff=Backoff(delay_seconds=600, jitter=0))
BREAKS = Policy(
    on_error=Retry(),
    backoff=Backoff.constant(0.001, max_attempts=9),
    breaker=Breaker(failures=1, pause_seconds=900),
)


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({"policy": RETRIES}, [0, 600, 1800]),
        ({"policy": BREAKS}, [0, 900, 1800]),
    ],
)
def test_catch_up_does_not_wait_for_retries(settings: dict[str, Any], seconds: list[float]) -> None:
    clock, tried = FixedClock(), list[datetime]()
    start = clock.now()
    with failing_app(clock, tried, **settings) as app:
        app.catch_up(timeout_seconds=20)
    assert [(at - start).total_seconds() for at in tried] == pytest.approx(seconds, abs=0.1)


def test_an_outbox_pauses_by_it() -> None:
    clock, tried = FixedClock(), list[datetime]()
    with failing_app(clock, tried, policy=BREAKS, delivery="outbox") as app:
        while len(tried) < 3:
            app.catch_up(timeout_seconds=20)
            clock.advance(900)
    assert tried[1] - tried[0] >= timedelta(seconds=900)
    assert tried[2] - tried[1] >= timedelta(seconds=900)


def test_a_running_app_tries_again_when_the_clock_is_advanced() -> None:
    clock, tried = FixedClock(), list[datetime]()
    with failing_app(clock, tried, policy=RETRIES) as app, app.running():
        for attempts, seconds in ((1, 600), (2, 1200)):
            wait_until(lambda n=attempts: len(tried) == n and waits(app), 20, "an attempt")  # type: ignore[misc]
            clock.advance(seconds - 1)
            assert len(tried) == attempts
            clock.advance(1)
        app.wait_for("failing", 1)
    assert len(tried) == 3


def waits(app: App) -> bool:
    (status,) = app.status()
    return status.waiting_until is not None
