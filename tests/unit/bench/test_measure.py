"""Which figure is better, and percentiles."""

from bisect import bisect_right
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import Measure, percentile


def test_twice_the_rate_is_twice_as_good() -> None:
    assert Measure.RATE.times_better(200.0, than=100.0) == 2.0


def test_half_the_delay_is_twice_as_good() -> None:
    assert Measure.MEDIAN_DELAY.times_better(0.05, than=0.1) == 2.0


def test_every_rate_is_better_when_more_and_nothing_else_is() -> None:
    better_when_more = {measure for measure in Measure if measure.more_is_better}
    assert better_when_more == {m for m in Measure if m.value.endswith("events_per_second")}


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 1), (1, 1), (50, 50), (98.5, 99), (99, 99), (99.9, 100), (100, 100)],
)
def test_percentiles_of_a_hundred_values(percent: float, expected: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], percent) == expected


@given(
    values=st.lists(st.floats(0, 1e6), min_size=1, max_size=200),
    percent=st.sampled_from((1, 50, 90, 99, 100)),
)
def test_a_percentile_is_the_least_value_that_enough_do_not_exceed(
    values: list[float], percent: int
) -> None:
    found = percentile(values, percent)
    ordered = sorted(values)

    def share(limit: float) -> Fraction:
        return Fraction(bisect_right(ordered, limit), len(ordered))

    assert found in values
    assert share(found) >= Fraction(percent, 100)
    smaller = [value for value in values if value < found]
    assert not smaller or share(max(smaller)) < Fraction(percent, 100)


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)
