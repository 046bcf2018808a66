"""The options that select items of the queue."""

from __future__ import annotations

import re
from typing import Any

import click

from holdfast.cli.options import Option, combined, limit_option
from holdfast.runtime.store.queue_items import STATUSES, QueueSelection

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """30s, 5m, 2h or 7d, in seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not an age such as 30s, 5m, 2h or 7d.")
    return float(match[1]) * UNIT_SECONDS[match[2]]


def status_option(text: str) -> Option:
    """Adds --status, which takes a status of the queue."""
    help_text = f"{text}: {', '.join(STATUSES[:-1])} or {STATUSES[-1]}."
    return click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help=help_text)


selection_options = combined(
    click.option("--projection", metavar="NAME", help="Only items of this projection."),
    click.option("--lane", metavar="NAME", help="Only items of this lane."),
    click.option("--version", type=int, metavar="N", help="Only events of this stream version."),
    status_option("Only items in this status"),
    click.option("--error-type", metavar="NAME", help="Only items whose last error is this class."),
    click.option("--event-type", metavar="NAME", help="Only events of this type."),
    click.option(
        "--older-than",
        "older_than_seconds",
        callback=_seconds,
        metavar="AGE",
        help="Only items older than this: 30s, 5m, 2h, 7d.",
    ),
    limit_option(100, "Maximum number of items, the oldest first."),
)


def selection_of(ids: tuple[int, ...], filters: dict[str, Any]) -> QueueSelection:
    """The items with these ids, or those that the options select; never all."""
    given = {name: value for name, value in filters.items() if value is not None}
    if ids and given:
        raise click.UsageError("name ids, or select items by options; not both.")
    if not ids and not given:
        raise click.UsageError(
            "which items? Name ids, or select with --lane, --projection, --status, --error-type, "
            "--event-type or --older-than."
        )
    return QueueSelection(ids=ids, **given)
