"""`holdfast migrate`, `reset` and `depose`: what an operator does to a database."""

from __future__ import annotations

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import by_option, note_option, yes_option
from holdfast.cli.output import json_option, plural, print_json
from holdfast.runtime.status import ProjectionStatus


@click.command()
@takes_app()
@json_option
def migrate(app: App, as_json: bool) -> None:
    """Create or update holdfast's own tables.

    Safe when several processes do it at once. An app does it by itself on first use, unless it
    was made with auto_migrate=False.
    """
    ran = app.migrate()
    if as_json:
        print_json({"url": str(app.url), "migrations": ran})
    elif ran:
        click.echo(f"{app.url}: ran {plural(ran, 'migration')}; the schema is up to date")
    else:
        click.echo(f"{app.url}: nothing to do, the schema is up to date")


@click.command()
@takes_app("PROJECTION")
@by_option
@note_option
@yes_option
@json_option
def reset(app: App, projection: str, by: str, note: str | None, yes: bool, as_json: bool) -> None:
    """Clear a projection, to build it again.

    Its tables and checkpoint are cleared in one transaction, and it begins at the first event.
    The journal is not touched. A worker that runs the projection begins again at once.
    """
    tables = app.tables(projection)
    position = sum(status.position for status in _statuses(app, projection))
    what = ", ".join(tables) if tables else "no table, as it has made none yet"
    question = (
        f"This clears on {app.url}: {what}; and sets the checkpoint of {projection!r} from "
        f"position {position:,} back to 0."
    )
    _confirm(question, yes=yes)
    cleared = app.reset(projection, by=by, note=note)
    if as_json:
        print_json({"projection": projection, "tables": cleared, "position_before": position})
    else:
        click.echo(f"{projection} is reset; cleared: {', '.join(cleared) or 'no table'}")


@click.command()
@takes_app("PROJECTION")
@by_option
@note_option
@yes_option
@json_option
def depose(app: App, projection: str, by: str, note: str | None, yes: bool, as_json: bool) -> None:
    """Take a projection from the process that runs it, frozen or not.

    Ends its lease and raises the epoch: whatever that process still tries is refused. Another
    worker that stands by takes over; the deposed one stands by too, once it wakes. On SQLite a
    process that is frozen inside a write transaction can't be deposed: end it instead.
    """
    app.tables(projection)  # A wrong name is an error before the question.
    leaders = sorted({s.leader for s in _statuses(app, projection) if s.leader})
    who = ", ".join(leaders) if leaders else "nobody that can be seen"
    _confirm(f"{projection!r} is run by {who}. This takes it away.", yes=yes)
    deposed = app.depose(projection, by=by, note=note)
    if as_json:
        print_json({"projection": projection, "deposed": deposed, "leaders": leaders})
    elif deposed:
        click.echo(f"{projection}: {who} is deposed")
    else:
        click.echo(f"{projection}: nobody held its lease; its epoch was raised all the same")


def _statuses(app: App, projection: str) -> list[ProjectionStatus]:
    return [status for status in app.status() if status.projection == projection]


def _confirm(question: str, *, yes: bool) -> None:
    if not yes:
        click.confirm(f"{question}\nGo on?", abort=True, err=True)
