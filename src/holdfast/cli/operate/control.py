"""`holdfast pause`, `resume`, `retry`, `depose`, `reshard`: whether, where and in how many shards a
projection runs."""

from __future__ import annotations

from typing import Any

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import confirm
from holdfast.cli.options import Seconds, change_options, confirmed_change_options
from holdfast.cli.output import plural, print_result


@click.command()
@takes_app("PROJECTION")
@change_options
def pause(app: App, projection: str, as_json: bool, **audit: Any) -> None:
    """Pause a projection until it is resumed.

    When the command returns, no process commits anything more for the projection. A pause
    outlives restarts.
    """
    changed = app.pause(projection, **audit)
    text = f"{projection} is paused" if changed else f"{projection} was paused already"
    print_result(text, as_json, projection=projection, state="paused", changed=changed)


@click.command()
@takes_app("PROJECTION")
@change_options
def resume(app: App, projection: str, as_json: bool, **audit: Any) -> None:
    """Resume a paused projection."""
    changed = app.resume(projection, **audit)
    text = f"{projection} is resumed" if changed else f"{projection} was not paused"
    print_result(text, as_json, projection=projection, state="resumed", changed=changed)


@click.command()
@takes_app("PROJECTION")
@change_options
def retry(app: App, projection: str, as_json: bool, **audit: Any) -> None:
    """Have a projection go on that has stopped at an error.

    Workers that run try the event again within seconds, and need no restart. A projection that
    waits for a retry does not wait any longer.
    """
    changed = app.retry(projection, **audit)
    text = f"{projection} is tried again" if changed else f"{projection} had not stopped"
    print_result(text, as_json, projection=projection, changed=changed)


@click.command()
@takes_app("PROJECTION")
@confirmed_change_options
def depose(app: App, projection: str, yes: bool, as_json: bool, **audit: Any) -> None:
    """Take a projection from the process that runs it, frozen or not.

    The command ends the lease and raises the epoch, so that the database refuses whatever the
    process still tries to commit. A worker that stands by takes over. The deposed one stands by
    too, once it wakes up. On SQLite, a process that is frozen inside a write transaction can't be
    deposed: end it instead.
    """
    app.tables(projection)  # Raises for an unknown name, before the question.
    leaders = sorted({s.leader for s in app.status() if s.projection == projection and s.leader})
    names = ", ".join(leaders) or "nobody that can be seen"
    confirm(f"{projection!r} is run by {names}. This takes it away.", yes=yes)
    deposed = app.depose(projection, **audit)
    nobody = "nobody held its lease; its epoch was raised all the same"
    text = f"{projection}: {f'{names} is deposed' if deposed else nobody}"
    print_result(text, as_json, projection=projection, deposed=deposed, leaders=leaders)


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
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop waiting after this time. Workers go on with the change.",
)
@change_options
def reshard(app: App, projection: str, as_json: bool, **options: Any) -> None:
    """Change the number of shards of a projection.

    Workers may run the projection meanwhile. The present shards go on to the furthest position
    that one of them has reached, and the new ones begin there: no event is lost or applied twice.
    The command takes part in this work. If it is ended, workers finish the change, or the same
    command does. --to with the former number takes the change back.
    """
    shards = app.reshard(projection, **options)
    text = f"{projection} runs in {plural(shards, 'shard')}"
    print_result(text, as_json, projection=projection, shards=shards)
