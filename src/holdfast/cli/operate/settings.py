"""`holdfast set`: settings of a projection that are changed while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import Any

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.options import change_options
from holdfast.cli.output import Table, one_line, print_result, print_rows, utc
from holdfast.sql.operate.settings import Setting

DEFAULT = "default"
WORDS = {"none": None, "true": True, "false": False}


@click.command("set")
@takes_app("PROJECTION", assignments="NAME=VALUE")
@click.option("--reset", is_flag=True, help="Have the code's values count again, of all settings.")
@change_options
def set_(
    app: App, projection: str, values: Sequence[str], reset: bool, as_json: bool, **audit: Any
) -> None:
    """Change settings of a projection while it runs, or show them.

    For example: holdfast set balances poll.interval_seconds=5 backoff.max_attempts=none. The value
    `default` has the code's value count again. Values are kept in the database, and count until
    they are reset, also after a restart. Workers that run take them up at once.
    """
    changes = dict(map(_assignment, values))
    if reset and changes:
        raise click.UsageError("--reset is for all settings; leave out the values.")
    if not (reset or changes):
        _show(app, projection, as_json)
        return
    wanted = {name: value for name, value in changes.items() if value != DEFAULT}
    dropped = [name for name in changes if name not in wanted]
    if wanted:
        app.override(projection, wanted, **audit)
    if reset or dropped:
        dropped = app.drop_overrides(projection, None if reset else dropped, **audit)
    said = [f"{name}={dumps(value)}" for name, value in wanted.items()]
    said += [f"{name} as in the code" for name in dropped]
    text = f"{projection}: {', '.join(said) or 'nothing was set'}"
    print_result(text, as_json, projection=projection, set=wanted, reset=dropped)


def _show(app: App, projection: str, as_json: bool) -> None:
    settings = app.settings(projection)
    fields = [msgspec.to_builtins(setting) for setting in settings]
    print_rows(settings, _table, "", as_json, projection=projection, settings=fields)


def _assignment(word: str) -> tuple[str, Any]:
    name, _, text = word.partition("=")
    if text.lower() in WORDS:
        return name, WORDS[text.lower()]
    if text == DEFAULT:
        return name, DEFAULT
    for number in (int, float):
        try:
            return name, number(text)
        except ValueError:
            continue
    raise click.BadParameter(f"{word!r}: a value is a number, true, false, none or {DEFAULT}.")


def _table(settings: Sequence[Setting]) -> Table:
    rows = []
    for setting in settings:
        why = ""
        if (override := setting.override) is not None:
            why = f"{override.by}, {utc(override.at)}"
            why += f": {one_line(override.note)}" if override.note else ""
        rows.append((setting.name, _text(setting.value), _text(setting.code_value), why))
    return Table(("setting", "value", "in the code", "set by"), rows, fold=("set by",))


def _text(value: Any) -> str:
    return "none" if value is None else dumps(value)
