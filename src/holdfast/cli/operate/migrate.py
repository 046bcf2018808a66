"""`holdfast migrate`: holdfast's own tables."""

from __future__ import annotations

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.options import json_option
from holdfast.cli.output import plural, print_result


@click.command()
@takes_app()
@json_option
def migrate(app: App, as_json: bool) -> None:
    """Create or update holdfast's own tables.

    Several processes may do it at the same time. An app does it by itself on first use, unless it
    was made with auto_migrate=False.
    """
    ran = app.migrate()
    what = f"ran {plural(ran, 'migration')};" if ran else "nothing to do,"
    text = f"{app.url}: {what} the schema is up to date"
    print_result(text, as_json, url=str(app.url), migrations=ran)
