"""Ratios: taken round by round, in the direction in which more is better."""

import pytest

from bench import ratios
from bench.case import FULL, Sample
from bench.catalogue import GROUPS, catalogue
from bench.measure import Measure
from bench.ratios import RATIOS, Outcome, Ratio, outcomes


def rate(events_per_second: int) -> Sample:
    return Sample(events=events_per_second, seconds=1.0, cpu_seconds=0.5)


def delay(seconds: float) -> Sample:
    figures = {Measure.MEDIAN_DELAY: seconds}
    return Sample(events=1, seconds=1.0, cpu_seconds=0.0, figures=figures)


def only(monkeypatch: pytest.MonkeyPatch, ratio: Ratio) -> Ratio:
    monkeypatch.setattr(ratios, "RATIOS", (ratio,))
    return ratio


def test_the_median_is_that_of_the_rounds_and_not_of_the_medians(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch, Ratio("a/ours", to="a/theirs", bar=2.0))
    ours, theirs = [rate(300), rate(100), rate(900)], [rate(100), rate(100), rate(300)]
    (found,) = outcomes({"a/ours": ours, "a/theirs": theirs})
    assert (found.median, found.low, found.high) == (3.0, 1.0, 3.0)
    assert found.met is True


def test_of_what_should_be_small_the_smaller_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Ratio("a/ours", to="a/theirs", bar=15.0, measure=Measure.MEDIAN_DELAY))
    (found,) = outcomes({"a/ours": [delay(0.005)], "a/theirs": [delay(0.05)]})
    assert found.median == pytest.approx(10.0)
    assert found.met is False


def test_a_value_is_what_a_rate_is_divided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Ratio("a/ours", to=50))
    (found,) = outcomes({"a/ours": [rate(100)]})
    assert (found.median, found.met) == (2.0, None)


def test_a_limit_on_memory_is_met_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Ratio("a/ours", to=250e6, bar=1.0, measure=Measure.PEAK_MEMORY))

    def peak(size: float) -> Outcome:
        figures = {Measure.PEAK_MEMORY: size}
        sample = Sample(events=1, seconds=1.0, cpu_seconds=0.0, figures=figures)
        (found,) = outcomes({"a/ours": [sample]})
        return found

    assert peak(200e6).met is True
    assert peak(251e6).met is False


def test_a_figure_is_compared_with_another_of_its_own_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only(monkeypatch, Ratio("a/ours", to=Measure.FIRST_RATE, measure=Measure.LAST_RATE))
    samples = [
        Sample(1, 1.0, 0.0, {Measure.FIRST_RATE: first, Measure.LAST_RATE: last})
        for first, last in ((100.0, 90.0), (200.0, 160.0), (100.0, 110.0))
    ]
    (found,) = outcomes({"a/ours": samples})
    assert (found.low, found.median, found.high) == pytest.approx((0.8, 0.9, 1.1))


def test_a_case_that_has_not_run_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Ratio("a/ours", to="a/theirs"))
    assert not list(outcomes({"a/ours": [rate(1)]}))
    assert not list(outcomes({"a/theirs": [rate(1)]}))


def test_every_ratio_names_cases_that_there_are() -> None:
    known = catalogue(FULL)
    names = {case.name for case in known.cases}
    # A peer that is not installed has no cases.
    peers = ("eventsource-py", "eventsourcing") if known.missing else ()
    for ratio in RATIOS:
        for name in (ratio.case, ratio.to):
            if isinstance(name, str) and not name.endswith(peers):
                assert name in names


def test_every_group_has_a_case() -> None:
    assert {case.group for case in catalogue(FULL).cases} == set(GROUPS)
