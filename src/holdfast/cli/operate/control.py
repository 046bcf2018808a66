"""`holdfast pause`, `resume` and `rewind`: what an operator does to a projection that goes on."""

from __future__ import annotations

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import by_option, confirm, note_option, yes_option
from holdfast.cli.output import json_option, print_json

FIRST_SKIP = "first-skip"


@click.command()
@takes_app("PROJECTION")
@by_option
@note_option
@json_option
def pause(app: App, projection: str, by: str, note: str | None, as_json: bool) -> None:
    """Stop a projection's work until it is resumed.

    When the command returns, nothing more is committed, in whatever process the projection runs.
    A pause outlives restarts.
    """
    changed = app.pause(projection, by=by, note=note)
    if as_json:
        print_json({"projection": projection, "state": "paused", "changed": changed})
    else:
        click.echo(f"{projection} is paused" if changed else f"{projection} was paused already")


@click.command()
@takes_app("PROJECTION")
@by_option
@note_option
@json_option
def resume(app: App, projection: str, by: str, note: str | None, as_json: bool) -> None:
    """Let a paused projection go on."""
    changed = app.resume(projection, by=by, note=note)
    if as_json:
        print_json({"projection": projection, "state": "resumed", "changed": changed})
    else:
        click.echo(f"{projection} is resumed" if changed else f"{projection} was not paused")


@click.command()
@takes_app("PROJECTION")
@click.option(
    "--to",
    "shards",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many shards; without it, as many as the code says.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop waiting after this; the change goes on where workers run.",
)
@by_option
@note_option
@json_option
def reshard(
    app: App,
    projection: str,
    *,
    shards: int | None,
    timeout_seconds: float | None,
    by: str,
    note: str | None,
    as_json: bool,
) -> None:
    """Change how many shards a projection has.

    It may run meanwhile. The present shards go on to the furthest position that one of them has
    reached, and others begin there: nothing is lost or applied twice. The command takes part in
    that, and when it is ended, workers finish the change, or the same command does. --to with the
    former number takes it back.
    """
    number = app.reshard(
        projection, shards=shards, by=by, note=note, timeout_seconds=timeout_seconds
    )
    if as_json:
        print_json({"projection": projection, "shards": number})
    else:
        click.echo(f"{projection} runs in {number} shard{'' if number == 1 else 's'}")


def _target(_ctx: click.Context, _param: click.Parameter, value: str) -> int | None:
    """A position, or None for the first skip."""
    if value == FIRST_SKIP:
        return None
    if value.isdecimal():
        return int(value)
    raise click.BadParameter(f"{value!r} is neither {FIRST_SKIP} nor a position.")


@click.command()
@takes_app("PROJECTION")
@click.option("--feed", required=True, metavar="NAME", help="The partition, as in orders[3].")
@click.option(
    "--to",
    required=True,
    type=click.IntRange(min=1),
    metavar="OFFSET",
    help="The offset to go on with; what is before it is lost.",
)
@by_option
@click.option("--note", required=True, metavar="TEXT", help="Why it may be lost; required.")
@yes_option
@json_option
def forward(
    app: App, projection: str, *, feed: str, to: int, by: str, note: str, yes: bool, as_json: bool
) -> None:
    """Go on from a later offset of a Kafka partition, past records that are gone.

    What is between is never applied. A worker that runs it goes on from there at once; one that
    has stopped has to be started again.
    """
    app.tables(projection)  # A wrong name is an error before the question.
    before = sum(s.position for s in app.status() if (s.projection, s.feed) == (projection, feed))
    confirm(
        f"This takes {projection!r} on {app.url} from offset {before:,} of {feed} to {to:,}; what "
        "is between is lost.",
        yes=yes,
    )
    app.forward(projection, to, feed=feed, by=by, note=note)
    if as_json:
        print_json(
            {"projection": projection, "feed": feed, "position": to, "position_before": before}
        )
    else:
        click.echo(f"{projection} is at offset {to:,} of {feed}, and goes on from there")


@click.command()
@takes_app("PROJECTION")
@click.option(
    "--to",
    required=True,
    callback=_target,
    metavar="first-skip|POSITION",
    help="Before the first skipped event, or a position: events after it are applied again.",
)
@by_option
@note_option
@yes_option
@json_option
def rewind(
    app: App,
    projection: str,
    *,
    to: int | None,
    by: str,
    note: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Go back, so that events are applied again.

    Only for a projection whose class says replayable = True, because its handlers see events a
    second time. A worker that runs it goes on from there at once.
    """
    app.tables(projection)  # A wrong name is an error before the question.
    where = "before the first event that was skipped" if to is None else f"to position {to}"
    before = sum(s.position for s in app.status() if s.projection == projection)
    confirm(
        f"This takes {projection!r} on {app.url} from position {before:,} back {where}; every "
        "event after that is applied again.",
        yes=yes,
    )
    position = app.rewind(projection, to=to, by=by, note=note)
    if as_json:
        print_json(
            {"projection": projection, "position": position, "position_before": before},
        )
    else:
        click.echo(f"{projection} is at position {position:,}, and goes on from there")
