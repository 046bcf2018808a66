"""The `holdfast` command. A command's module is loaded when the command is used: --help is quick.

app_argument  the app that a command works on
project_file  the app that a pyproject.toml names
options       options that several commands have
confirm       the question before a change
output        JSON, tables, texts, logs and progress, without passwords
run           `holdfast run`: worker processes, and their metrics and health over HTTP
operate       commands on projections: status, explain, pause, reset and others
queue         `holdfast queue`: events that could not be applied
outbox        `holdfast outbox`: delivery of outbox projections
journal       `holdfast journal`: append, tail, export and import
demo          `holdfast demo`: a bank whose worker is killed
"""

from __future__ import annotations

import logging
import sys
import traceback
from importlib import import_module

import click

from holdfast.cli.output import MAX_RECORD_CHARACTERS, print_text
from holdfast.errors import HoldfastError
from holdfast.texts import clean, shown

COMMANDS = {
    "audit": (
        "operate.audit",
        "Show what operators have changed, latest first: who, when, what and why.",
    ),
    "demo": ("demo.command", "Show holdfast at work, in half a minute."),
    "depose": (
        "operate.control",
        "Take a projection from the process that runs it, frozen or not.",
    ),
    "explain": (
        "operate.explain",
        "Say why a projection does not advance, and what to do about it.",
    ),
    "forward": (
        "operate.checkpoint",
        "Move a projection forward, past events that it will never apply.",
    ),
    "journal": ("journal", "Append, show, export and import events of the journal."),
    "migrate": ("operate.migrate", "Create or update holdfast's own tables."),
    "outbox": ("outbox", "Show and change how outbox projections are delivered."),
    "pause": ("operate.control", "Pause a projection until it is resumed."),
    "queue": ("queue.commands", "Inspect, requeue and resolve events that could not be applied."),
    "reset": ("operate.checkpoint", "Clear a projection, to build it again from the first event."),
    "reshard": ("operate.control", "Change the number of shards of a projection."),
    "resume": ("operate.control", "Resume a paused projection."),
    "retry": ("operate.control", "Have a projection go on that has stopped at an error."),
    "rewind": ("operate.checkpoint", "Move a projection back, so that events are applied again."),
    "run": ("run.command", "Run the projections of an app until SIGTERM or SIGINT."),
    "set": ("operate.settings", "Change settings of a projection while it runs, or show them."),
    "status": ("operate.status", "Show the state, position and lag of projections."),
}
"""Each command's module, and the first line of its help."""


class Commands(click.Group):
    """A group that loads a command's module when the command is used, and not for its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        commands = import_module(f"holdfast.cli.{module}")
        command: click.Command = getattr(commands, "set_" if cmd_name == "set" else cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=Commands, context_settings=CONTEXT)
@click.version_option(
    None, "-V", "--version", package_name="holdfast", message="%(prog)s %(version)s"
)
def cli() -> None:
    """Run projections, and operate them.

    Every command works on an app, which is named by the first argument, as in bank:app (the object
    app in the module bank, searched from the present folder); or by --app; or by HOLDFAST_APP; or
    by `app = "bank:app"` under [tool.holdfast] in the pyproject.toml of this folder or one above,
    up to the repository's root or the home folder, if only you and root can write it.

    Exit codes: 0 done; 1 an error, with one line on stderr; 2 a wrong command line; 3 a
    projection faulted while `run` ran it.
    """


def main() -> None:
    """Runs the command line. An error is one line on stderr; -v adds the traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal can't show must not end the command.
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
        text = "".join(traceback.format_exception(error))
        print_text(clean(text, MAX_RECORD_CHARACTERS), err=True)
    lines = clean(message, MAX_RECORD_CHARACTERS).splitlines()
    print_text(f"holdfast: {' '.join(shown(line.strip()) for line in lines)}", err=True)
    sys.exit(1)
