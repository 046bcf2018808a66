"""`holdfast pause`, `resume`, `depose` and `reshard`: whether, where and in how many shards a
projection runs."""

from __future__ import annotations

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import confirm
from holdfast.cli.options import change_options, confirmed_change_options
from holdfast.cli.output import plural, print_result


@click.command()
@takes_app("PROJECTION")
@change_options
def pause(app: App, projection: str, by: str, note: str | None, as_json: bool) -> None:
    """Pause a projection until it is resumed.

    When the command returns, no process commits anything more for the projection. A pause
    outlives restarts.
    """
    changed = app.pause(projection, by=by, note=note)
    print_result(
        {"projection": projection, "state": "paused", "changed": changed},
        f"{projection} is paused" if changed else f"{projection} was paused already",
        as_json=as_json,
    )


@click.command()
@takes_app("PROJECTION")
@change_options
def resume(app: App, projection: str, by: str, note: str | None, as_json: bool) -> None:
    """Resume a paused projection."""
    changed = app.resume(projection, by=by, note=note)
    print_result(
        {"projection": projection, "state": "resumed", "changed": changed},
        f"{projection} is resumed" if changed else f"{projection} was not paused",
        as_json=as_json,
    )


@click.command()
@takes_app("PROJECTION")
@confirmed_change_options
def depose(app: App, projection: str, by: str, note: str | None, yes: bool, as_json: bool) -> None:
    """Take a projection from the process that runs it, frozen or not.

    The command ends the lease and raises the epoch, so that the database refuses whatever the
    process still tries to commit. A worker that stands by takes over. The deposed one stands by
    too, once it wakes up. On SQLite, a process that is frozen inside a write transaction can't be
    deposed: end it instead.
    """
    app.tables(projection)  # Raises for an unknown name, before the question.
    leaders = sorted({s.leader for s in app.status() if s.projection == projection and s.leader})
    names = ", ".join(leaders) or "nobody that can be seen"
    confirm(f"{projection!r} is run by {names}. This takes it away.", yes=yes, from_pipe=True)
    deposed = app.depose(projection, by=by, note=note)
    print_result(
        {"projection": projection, "deposed": deposed, "leaders": leaders},
        f"{projection}: {names} is deposed"
        if deposed
        else f"{projection}: nobody held its lease; its epoch was raised all the same",
        as_json=as_json,
    )


@click.command()
@takes_app("PROJECTION")
@click.option(
    "--to",
    "shards",
    type=click.IntRange(min=1),
    metavar="N",
    help="The new number of shards; by default, the number in the code.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop waiting after this time. Workers go on with the change.",
)
@change_options
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
    """Change the number of shards of a projection.

    Workers may run the projection meanwhile. The present shards go on to the furthest position
    that one of them has reached, and the new ones begin there: no event is lost or applied twice.
    The command takes part in this work. If it is ended, workers finish the change, or the same
    command does. --to with the former number takes the change back.
    """
    number = app.reshard(
        projection, shards=shards, by=by, note=note, timeout_seconds=timeout_seconds
    )
    print_result(
        {"projection": projection, "shards": number},
        f"{projection} runs in {plural(number, 'shard')}",
        as_json=as_json,
    )
