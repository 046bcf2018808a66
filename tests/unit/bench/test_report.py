"""The report: every figure with its unit, and the same ones in JSON."""

import json

import pytest
from rich.console import Console
from rich.table import Table

from bench import report
from bench.case import QUICK, Sample
from bench.measure import Measure
from bench.ratios import Ratio, Samples, outcomes

DELAYS: Samples = {
    "latency/postgres/holdfast": [
        Sample(100, 1.0, 0.2, {Measure.MEDIAN_DELAY: seconds, Measure.PEAK_MEMORY: 63e6})
        for seconds in (0.002, 0.004, 0.003)
    ],
    "latency/postgres/polling": [Sample(100, 1.0, 0.1, {Measure.MEDIAN_DELAY: 0.06})] * 3,
}
RATIO = Ratio(
    "latency/postgres/holdfast",
    to="latency/postgres/polling",
    bar=15.0,
    measure=Measure.MEDIAN_DELAY,
)


def printed(table: Table | None) -> str:
    assert table is not None
    console = Console(width=120, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_every_measure_has_a_label_and_a_text() -> None:
    for measure in Measure:
        assert report.label(measure)
        assert report.shown(measure, 1.0)


def test_figures_have_their_units() -> None:
    text = printed(report.figure_table(DELAYS))
    assert "3.0 ms" in text
    assert "2.0 – 4.0 ms" in text
    assert "63 MB" in text


def test_rates_alone_make_no_other_table() -> None:
    assert report.figure_table({"a/b": [Sample(1, 1.0, 0.0)]}) is None


def test_a_summary_is_the_rate_unless_there_are_figures() -> None:
    assert report.summary(Sample(5_000, 1.0, 0.0)) == "5,000 events/s"
    assert report.summary(DELAYS["latency/postgres/polling"][0]) == "p50 60.0 ms"


def test_a_ratio_stands_beside_its_bar() -> None:
    text = printed(report.ratio_table(list(outcomes(DELAYS, [RATIO]))))
    assert "p50 of holdfast / polling" in text
    assert "20.00" in text
    assert "15.00 – 30.00" in text
    assert "not met" not in text


def test_a_table_without_bars_has_no_verdicts() -> None:
    text = printed(report.ratio_table(list(outcomes(DELAYS, [RATIO])), with_bars=False))
    assert "20.00" in text
    assert "met" not in text
    assert "bar" not in text


def test_json_has_the_same_figures() -> None:
    found = json.loads(report.as_json(DELAYS, list(outcomes(DELAYS, [RATIO])), scale=QUICK))
    ours = found["cases"][0]
    assert ours["name"] == "latency/postgres/holdfast"
    assert ours["p50_seconds"] == 0.003
    assert [sample["p50_seconds"] for sample in ours["samples"]] == [0.002, 0.004, 0.003]
    assert ours["samples"][0]["events_per_second"] == 100.0
    (ratio,) = found["ratios"]
    assert ratio["measure"] == "p50_seconds"
    assert ratio["median"] == pytest.approx(20.0)
    assert ratio["met"] is True
