"""The clock that stands still."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App, NewEvent
from holdfast.testing import FixedClock


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
