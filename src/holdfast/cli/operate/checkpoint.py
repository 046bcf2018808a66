"""`holdfast reset`, `rewind` and `forward`: commands that move a projection's checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import confirm
from holdfast.cli.options import by_option, confirmed_change_options, json_option, yes_option
from holdfast.cli.output import plural, print_result
from holdfast.model.feed_names import JOURNAL
from holdfast.model.start import Target

FIRST_SKIP = "first-skip"


@click.command()
@takes_app("PROJECTION")
@confirmed_change_options
def reset(app: App, projection: str, yes: bool, as_json: bool, **audit: Any) -> None:
    """Clear a projection, to build it again from the first event.

    One transaction clears its tables, its checkpoint and its queue, and calls clear() of its class.
    The journal is not touched. A worker that runs the projection begins again at once. Events that
    its handlers append, messages that they send and calls to other systems are made again.
    """
    tables = app.tables(projection)
    before = _position(app, projection)
    what = ", ".join(tables) if tables else "no table of its own, as it has made none"
    left = app.tables_left(projection)
    text = (
        f"This clears on {app.url}: {what}; and sets the checkpoint of {projection!r} from "
        f"position {before:,} back to its start."
    )
    if app.has_clear(projection):
        text += " It calls clear(tx) of its class, which clears what it says."
    if left:
        text += (
            " Not cleared, because they are not its own and its class has no clear(tx): "
            f"{', '.join(left)}."
        )
    if app.has_effects(projection):
        text += (
            " Its handlers then see every event again: events that they append, messages that they "
            "send and calls to other systems are made again."
        )
    confirm(text, yes=yes)
    cleared = app.reset(projection, **audit)
    text = f"{projection} is reset; cleared: {', '.join(cleared) or 'no table'}"
    if left:
        text += f"; not cleared: {', '.join(left)}"
    print_result(
        text,
        as_json,
        projection=projection,
        tables=cleared,
        tables_left=left,
        position_before=before,
    )


def _target(_ctx: click.Context, _param: click.Parameter, value: str) -> int | None:
    """A position, or None for the first skipped event."""
    if value == FIRST_SKIP:
        return None
    if value.isdecimal():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither {FIRST_SKIP} nor a position.")


@click.command()
@takes_app("PROJECTION")
@click.option(
    "--to",
    required=True,
    callback=_target,
    metavar="first-skip|POSITION",
    help="Before the first skipped event, or a position: events after it are applied again.",
)
@confirmed_change_options
def rewind(
    app: App, projection: str, *, to: int | None, yes: bool, as_json: bool, **audit: Any
) -> None:
    """Move a projection back, so that events are applied again.

    Only for a projection whose class says replayable = True, because its handlers see events a
    second time. A worker that runs the projection goes on from there at once.
    """
    before = _position(app, projection)
    where = "before the first event that was skipped" if to is None else f"to position {to}"
    confirm(
        f"This takes {projection!r} on {app.url} from position {before:,} back {where}; every "
        "event after that is applied again.",
        yes=yes,
    )
    position = app.rewind(projection, to=to, **audit)
    text = f"{projection} is at position {position:,}, and goes on from there"
    print_result(text, as_json, projection=projection, position=position, position_before=before)


def _place(_ctx: click.Context, _param: click.Parameter, value: str) -> Target:
    """now, a position, or a time."""
    if value == "now":
        return "now"
    if value.isdecimal():
        return int(value)
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither now, nor a position, nor a time.") from None
    if at.tzinfo is None:
        raise click.BadParameter(f"{value!r} needs a time zone, as in 2026-01-31T12:00:00Z.")
    return at


@click.command()
@takes_app("PROJECTION")
@click.option(
    "--to",
    required=True,
    callback=_place,
    metavar="now|POSITION|TIME",
    help="Go on with the event after this position (on Kafka: with this offset), or with the first "
    "one of this time, as in 2026-01-31T12:00:00Z.",
)
@click.option(
    "--feed",
    metavar="NAME",
    help="A partition of Kafka, as in orders[3]. Without it, now and TIME move all partitions.",
)
@by_option
@click.option("--note", required=True, metavar="TEXT", help="Why events may be passed.")
@yes_option
@json_option
def forward(
    app: App,
    projection: str,
    *,
    to: Target,
    feed: str | None,
    yes: bool,
    as_json: bool,
    **audit: Any,
) -> None:
    """Move a projection forward, past events that it will never apply.

    For a backlog that nobody needs any more, and for records of Kafka that are gone. Events that
    are parked or have failed stay in the queue. The command says how many events are passed before
    it asks. A worker that runs the projection goes on from there at once.
    """
    plan = app.forward(projection, to, feed=feed, preview=True, **audit)
    steps = "; ".join(
        f"{f'{move.feed} ' if len(plan) > 1 or feed else ''}from position "
        f"{move.position_before:,} to {move.position:,}, past {plural(move.events, 'event')}"
        for move in plan
    )
    confirm(
        f"This takes {projection!r} on {app.url} forward: {steps}. They are never applied.", yes=yes
    )
    # What was shown is done, also where the end has moved on meanwhile.
    is_foreign = app.feed_of(projection) != JOURNAL
    moved = [
        done
        for move in (plan if is_foreign else plan[:1])
        for done in app.forward(
            projection, move.position, feed=move.feed if is_foreign else None, **audit
        )
    ]
    events = (sum if is_foreign else max)(move.events for move in moved)
    text = f"{projection} has passed {plural(events, 'event')}, and goes on behind them"
    feeds = [asdict(move) for move in moved]
    print_result(text, as_json, projection=projection, events=events, feeds=feeds)


def _position(app: App, projection: str, *, feed: str | None = None) -> int:
    """Where a projection is, on one of its feeds or summed over all."""
    app.tables(projection)  # Raises for an unknown name, before the question.
    found = [status for status in app.status() if status.projection == projection]
    return sum(status.position for status in found if feed in (None, status.feed))
