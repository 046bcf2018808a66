"""The `holdfast` command. Each command is loaded when it is asked for, so that --help is quick."""

from __future__ import annotations

import logging
import sys
import traceback
from importlib import import_module

import click

from holdfast.cli.output import redacted, shown
from holdfast.core.errors import HoldfastError

COMMANDS = {
    "audit": "holdfast.cli.audit",
    "demo": "holdfast.cli.demo",
    "depose": "holdfast.cli.upkeep",
    "explain": "holdfast.cli.explain",
    "forward": "holdfast.cli.control",
    "journal": "holdfast.cli.journal",
    "migrate": "holdfast.cli.upkeep",
    "outbox": "holdfast.cli.outbox",
    "pause": "holdfast.cli.control",
    "queue": "holdfast.cli.queue",
    "reset": "holdfast.cli.upkeep",
    "resume": "holdfast.cli.control",
    "rewind": "holdfast.cli.control",
    "run": "holdfast.cli.run",
    "status": "holdfast.cli.status",
}
"""Each command's module; the command has its name there."""


class Commands(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    None, "-V", "--version", package_name="holdfast", message="%(prog)s %(version)s"
)
def cli() -> None:
    """Keeps read models exactly right: runs projections and looks after them.

    Every command works on an app: its first argument MODULE:APP (as in bank:app, found from the
    present folder), or else --app, or HOLDFAST_APP, or `app = "bank:app"` under [tool.holdfast] in
    the pyproject.toml of this folder or one above it.

    Exit codes: 0 done, 1 something is wrong (one line on stderr says what), 2 the command line
    is wrong, 3 a projection faulted while `run` ran it.
    """


def main() -> None:
    """Runs the command line. What a user can get wrong is answered with a line, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show a character must not end the command.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        cli(prog_name="holdfast")
    except HoldfastError as error:
        _fail(str(error), error)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), error)
    except Exception as error:
        _fail(f"unexpected {type(error).__name__}: {error}", error)


def _fail(message: str, error: BaseException) -> None:
    logger = logging.getLogger("holdfast")
    if logger.isEnabledFor(logging.DEBUG):
        click.echo(redacted("".join(traceback.format_exception(error))), err=True)
    one_line = " ".join(shown(line.strip()) for line in redacted(message).splitlines())
    click.echo(f"holdfast: {one_line}", err=True)
    sys.exit(1)
