"""Ratios: taken round by round, in the direction in which more is better."""

import pytest

from bench.case import Sample
from bench.measure import Measure
from bench.ratios import Outcome, Ratio, open_cases, outcomes


def rate(events_per_second: int) -> Sample:
    return Sample(events=events_per_second, seconds=1.0, cpu_seconds=0.5)


def delay(seconds: float) -> Sample:
    figures = {Measure.MEDIAN_DELAY: seconds}
    return Sample(events=1, seconds=1.0, cpu_seconds=0.0, figures=figures)


def test_the_median_is_that_of_the_rounds_and_not_of_the_medians() -> None:
    ratio = Ratio("a/ours", to="a/theirs", bar=2.0)
    ours, theirs = [rate(300), rate(200), rate(900)], [rate(300), rate(100), rate(100)]
    (found,) = outcomes({"a/ours": ours, "a/theirs": theirs}, [ratio])
    assert (found.low, found.median, found.high) == (1.0, 2.0, 9.0)
    assert found.met is True


def test_of_what_should_be_small_the_smaller_is_better() -> None:
    ratio = Ratio("a/ours", to="a/theirs", bar=15.0, measure=Measure.MEDIAN_DELAY)
    (found,) = outcomes({"a/ours": [delay(0.005)], "a/theirs": [delay(0.05)]}, [ratio])
    assert found.median == pytest.approx(10.0)
    assert found.met is False


def test_a_value_is_what_a_rate_is_divided_by() -> None:
    ratio = Ratio("a/ours", to=50)
    (found,) = outcomes({"a/ours": [rate(100)]}, [ratio])
    assert (found.median, found.met) == (2.0, None)


def test_a_limit_on_memory_is_met_below_it() -> None:
    ratio = Ratio("a/ours", to=250e6, bar=1.0, measure=Measure.PEAK_MEMORY)

    def peak(size: float) -> Outcome:
        figures = {Measure.PEAK_MEMORY: size}
        sample = Sample(events=1, seconds=1.0, cpu_seconds=0.0, figures=figures)
        (found,) = outcomes({"a/ours": [sample]}, [ratio])
        return found

    assert peak(200e6).met is True
    assert peak(251e6).met is False


def test_a_figure_is_compared_with_another_of_its_own_round() -> None:
    ratio = Ratio("a/ours", to=Measure.FIRST_RATE, measure=Measure.LAST_RATE)
    samples = [
        Sample(1, 1.0, 0.0, {Measure.FIRST_RATE: first, Measure.LAST_RATE: last})
        for first, last in ((100.0, 90.0), (200.0, 160.0), (100.0, 110.0))
    ]
    (found,) = outcomes({"a/ours": samples}, [ratio])
    assert (found.low, found.median, found.high) == pytest.approx((0.8, 0.9, 1.1))


def test_a_case_that_has_not_run_has_no_ratio() -> None:
    ratio = Ratio("a/ours", to="a/theirs")
    assert not list(outcomes({"a/ours": [rate(1)]}, [ratio]))
    assert not list(outcomes({"a/theirs": [rate(1)]}, [ratio]))


def test_rounds_that_one_of_two_cases_has_more_are_left_out() -> None:
    samples = {"a/ours": [rate(200), rate(400)], "a/theirs": [rate(100)]}
    (found,) = outcomes(samples, [Ratio("a/ours", to="a/theirs")])
    assert found.by_round == [2.0]


@pytest.mark.parametrize(
    ("bar", "is_open"), [(1.0, False), (2.0, False), (2.1, True), (4.0, True), (4.1, False)]
)
def test_cases_run_again_where_rounds_disagree_about_a_bar(bar: float, is_open: bool) -> None:
    samples = {"a/ours": [rate(200), rate(400)], "a/theirs": [rate(100), rate(100)]}
    ratios = [Ratio("a/ours", to="a/theirs", bar=bar), Ratio("a/theirs", to=50)]
    assert open_cases(samples, ratios) == ({"a/ours", "a/theirs"} if is_open else set())


def test_what_is_compared_with_a_value_runs_again_alone() -> None:
    assert open_cases({"a/ours": [rate(1), rate(3)]}, [Ratio("a/ours", to=2, bar=1.0)]) == {
        "a/ours"
    }
