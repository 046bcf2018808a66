"""The chart: every contestant has a bar whose length is the logarithm of its rate."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from bench import report
from bench.case import QUICK, Sample
from bench.chart import Axis, NothingToDraw, chart
from bench.cli import main

SVG = "{http://www.w3.org/2000/svg}"


def results(**rates: int) -> dict[str, Any]:
    """As a run writes them, with `__` for `/`."""
    samples = {
        name.replace("__", "/").replace("_", "-"): [Sample(rate, 1.0, 0.1)]
        for name, rate in rates.items()
    }
    found: dict[str, Any] = json.loads(report.as_json(samples, [], scale=QUICK))
    return found


def bars(svg: str) -> list[tuple[str, float]]:
    """The look and the length of each bar, from top to bottom."""
    root = ElementTree.fromstring(svg)
    return [
        (str(rect.get("class")), float(str(rect.get("width"))))
        for rect in root.iter(f"{SVG}rect")
        if rect.get("class") in ("ours", "others")
    ]


def texts(svg: str) -> list[str]:
    return [str(text.text) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_ten_times_as_fast_is_always_the_same_step() -> None:
    svg = chart(
        results(
            catch_up__postgres__table=50_000,
            catch_up__postgres__hand_written=5_000,
            catch_up__postgres__eventsource_py=500,
        )
    )
    (_, first), (_, second), (_, third) = bars(svg)
    assert first - second == pytest.approx(second - third, abs=0.2)
    assert third > 0


def test_the_fastest_comes_first_and_ours_look_different() -> None:
    svg = chart(
        results(
            catch_up__postgres__eventsourcing=800,
            catch_up__postgres__table=50_000,
            catch_up__postgres__set_based=90_000,
        )
    )
    assert [look for look, _ in bars(svg)] == ["others", "ours", "others"]
    lengths = [length for _, length in bars(svg)]
    assert lengths == sorted(lengths, reverse=True)


def test_both_databases_have_a_panel_and_other_groups_have_none() -> None:
    svg = chart(
        results(
            catch_up__postgres__table=50_000, catch_up__sqlite__table=9_000, append__1__journal=77
        )
    )
    found = texts(svg)
    assert "PostgreSQL" in found
    assert "SQLite" in found
    assert {"50,000", "9,000"} <= set(found)
    assert "77" not in found


def test_a_new_case_of_ours_goes_by_its_own_name() -> None:
    svg = chart(results(catch_up__sqlite__two_shards=1_000))
    assert "holdfast, two-shards" in texts(svg)
    assert bars(svg)[0][0] == "ours"


def test_every_case_of_set_based_sql_counts_as_another() -> None:
    svg = chart(
        results(catch_up__sqlite__set_based=4_000, catch_up__sqlite__set_based_same_range=9_000)
    )
    assert {look for look, _ in bars(svg)} == {"others"}


def test_the_axis_ends_where_it_should() -> None:
    axis = Axis(2, 5)
    assert axis.x(100) < axis.x(1_000) < axis.x(100_000)
    assert axis.x(1_000) - axis.x(100) == pytest.approx(axis.x(100_000) - axis.x(10_000))


def test_results_without_catching_up_are_refused() -> None:
    with pytest.raises(NothingToDraw, match="catch-up/postgres"):
        chart(results(append__1__journal=100))


def test_the_command_draws_what_a_run_has_written(tmp_path: Path) -> None:
    written, svg = tmp_path / "results.json", tmp_path / "chart.svg"
    written.write_text(json.dumps(results(catch_up__sqlite__table=9_000)))
    done = CliRunner().invoke(main, ["chart", str(written), str(svg)])
    assert done.exit_code == 0, done.output
    assert len(bars(svg.read_text())) == 1


def test_the_command_says_what_it_cannot_draw(tmp_path: Path) -> None:
    written, svg = tmp_path / "results.json", tmp_path / "chart.svg"
    written.write_text("{}")
    done = CliRunner().invoke(main, ["chart", str(written), str(svg)])
    assert done.exit_code == 1
    assert "results.json can't be drawn" in done.output
    assert not svg.exists()
