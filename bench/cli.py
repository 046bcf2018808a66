"""The command: which cases, how many rounds, and where the figures go."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import report
from bench.case import FULL, QUICK, Case, Sample, Scale
from bench.catalogue import BY_NAME, catalogue
from bench.chart import NothingToDraw, chart
from bench.ratios import Samples, open_cases, outcomes
from bench.rounds import in_turn, measuring

FILE_CHARACTERS = 110
"""As wide as the tables are that no terminal limits."""


@click.group(invoke_without_command=True)
@click.option("--quick", is_flag=True, help="Little data, one round: about a minute.")
@click.option(
    "--case",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this case, or this group of cases (append/1). May be given again.",
)
@click.option(
    "--all",
    "with_all",
    is_flag=True,
    help=f"Also the groups that otherwise run only when they are named: {', '.join(BY_NAME)}.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help=f"How often each case runs, instead of {FULL.rounds} times, and {FULL.more_rounds} times "
    "more where a bar is near.",
)
@click.option(
    "--json",
    "json_file",
    # Opened at once, so that a path that cannot be written does not cost a whole run.
    type=click.File("w", lazy=False, atomic=True),
    help="Write every sample to this file as well.",
)
@click.pass_context
def main(
    context: click.Context,
    *,
    quick: bool,
    names: Sequence[str],
    with_all: bool,
    rounds: int | None,
    json_file: TextIO | None,
) -> None:
    """Measure holdfast beside its peers, hand-written loops and the databases' own limits.

    The figures of one run can be compared with each other and with nothing else.
    """
    if context.invoked_subcommand is not None:
        return
    scale = QUICK if quick else FULL
    if rounds is not None:
        scale = replace(scale, rounds=rounds, more_rounds=0)
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_CHARACTERS)
    known = catalogue(scale)
    for sentence in known.missing:
        console.print(sentence, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for name in names:
        if not known.select([name]):
            raise click.BadParameter(
                f"there is no case {name}, only {', '.join(case.name for case in known.cases)}",
                param_hint="--case",
            )
    samples = _measure(known.cases if with_all else known.select(names), scale, console)
    found = list(outcomes(samples))
    if json_file is not None:
        json_file.write(report.as_json(samples, found, scale=scale) + "\n")
    console.print(report.case_table(samples))
    if (figures := report.figure_table(samples)) is not None:
        console.print(figures)
    if found:
        # On little data most of the time goes into starting.
        console.print(report.ratio_table(found, with_bars=not quick))


@main.command("chart")
@click.argument("results", type=click.File())
@click.argument("svg", type=click.Path(dir_okay=False, writable=True, path_type=Path))
def chart_command(results: TextIO, svg: Path) -> None:
    """Draw the SVG file from RESULTS, which --json has written: catching up, case by case."""
    try:
        svg.write_text(chart(json.load(results)))
    except (NothingToDraw, ValueError, KeyError) as error:
        raise click.ClickException(f"{results.name} can't be drawn: {error}") from error


def _measure(cases: Sequence[Case], scale: Scale, console: Console) -> Samples:
    """All samples, with a line for each as it comes, and a bar where there is a terminal."""
    samples: dict[str, list[Sample]] = {case.name: [] for case in cases}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        measuring(cases) as measure,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        started, taken, total = time.monotonic(), 0, len(cases) * scale.rounds
        task = progress.add_task("starting", total=total)
        for round_ in range(1, scale.rounds + scale.more_rounds + 1):
            if round_ == scale.rounds + 1:
                names = open_cases(samples)
                cases = [case for case in cases if case.name in names]
                total += len(cases) * scale.more_rounds
                progress.update(task, total=total)
            for case in in_turn(cases, round_):
                progress.update(task, description=case.name)
                sample = measure(case)
                samples[case.name].append(sample)
                taken += 1
                elapsed = timedelta(seconds=round(time.monotonic() - started))
                progress.console.print(
                    f"{elapsed}  {taken:3}/{total}  {case.name:38} {report.summary(sample)}",
                    highlight=False,
                    soft_wrap=True,
                )
                progress.advance(task)
    return samples
