"""Modules that are loaded at the start: only the needed ones, so that commands start quickly."""

import json
import subprocess
import sys

import pytest

from holdfast.cli import COMMANDS, cli

FOREIGN = {
    "aiosqlite",
    "asyncpg",
    "confluent_kafka",
    "django",
    "jinja2",
    "opentelemetry",
    "prometheus_client",
    "psycopg",
    "psycopg2",
    "pydantic",
    "sqlalchemy",
    "starlette",
    "uvicorn",
}
SCREEN = {"click", "rich"}
SLOW = {"asyncio", "http", "ssl", "subprocess"}

NOTHING = "import holdfast"
APP = "from holdfast import App"
PROJECTION = """
from dataclasses import dataclass
from holdfast import App, TableProjection, on

app = App("sqlite:///:memory:")

@dataclass
class Counted:
    by: int

@dataclass
class Sum:
    stream: str
    total: int = 0

@app.projection
class Sums(TableProjection[Sum]):
    @on(Counted)
    def counted(self, row, event):
        row.total += event.data.by

app.journal.append("a", [Counted(1)])
app.catch_up()
assert app.status()[0].events_processed == 1
"""
HELP = "from holdfast.cli import cli; cli(['--help'], standalone_mode=False)"
VERSION = "from holdfast.cli import cli; cli(['--version'], standalone_mode=False)"
REPORT = """
import json, sys
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(code: str) -> set[str]:
    """The names of all modules that are loaded in a fresh process after some code."""
    command = [sys.executable, "-c", code + REPORT if code.endswith("\n") else f"{code}\n{REPORT}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(json.loads(said.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (NOTHING, FOREIGN | SCREEN | SLOW | {"holdfast.app", "msgspec", "sqlite3"}),
        (APP, FOREIGN | SCREEN | SLOW),
        (PROJECTION, FOREIGN | SCREEN | SLOW),
        (HELP, FOREIGN | SLOW | {"holdfast.app", "msgspec", "rich", "sqlite3"}),
        (VERSION, FOREIGN | SLOW | {"holdfast.app", "msgspec", "rich", "sqlite3"}),
    ],
    ids=["import", "app", "projection", "help", "version"],
)
def test_nothing_is_loaded_that_is_not_needed(code: str, unwanted: set[str]) -> None:
    loaded = loaded_by(code)
    assert "holdfast" in loaded
    assert loaded & unwanted == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_first_line_of_each_help(name: str) -> None:
    with cli.make_context("holdfast", [], resilient_parsing=True) as context:
        command = cli.get_command(context, name)
    assert command is not None
    _, summary = COMMANDS[name]
    assert summary == command.get_short_help_str(limit=200)


def test_all_public_names_can_be_imported_at_once() -> None:
    code = "from holdfast import *; import holdfast; names = holdfast.__all__\n"
    check = "assert all(globals()[name] is getattr(holdfast, name) for name in names)\n"
    listed = "assert set(names) <= set(dir(holdfast))\n"
    assert "holdfast.app" in loaded_by(code + check + listed)


def test_an_unknown_name_is_an_error() -> None:
    import holdfast

    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Journl'"):
        holdfast.Journl  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(holdfast, "__wrapped__")
