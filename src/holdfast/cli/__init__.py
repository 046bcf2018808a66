"""The `holdfast` command. Each command is loaded when it is asked for, so that --help is quick."""

from __future__ import annotations

import logging
import sys
import traceback
from importlib import import_module

import click

from holdfast.cli.output import redacted, shown
from holdfast.errors import HoldfastError

COMMANDS = {
    "audit": (
        "operate.audit",
        "Show what people have changed, the latest first: who, when, what and why.",
    ),
    "demo": ("demo.command", "Show the product at work, in half a minute."),
    "depose": (
        "operate.lifecycle",
        "Take a projection from the process that runs it, frozen or not.",
    ),
    "explain": (
        "operate.explain",
        "Say why a projection does not advance, and what to do about it.",
    ),
    "forward": (
        "operate.control",
        "Go on from a later offset of a Kafka partition, past records that are gone.",
    ),
    "journal": (
        "journal",
        "Append to the journal, look into it, export and import it.",
    ),
    "migrate": ("operate.lifecycle", "Create or update holdfast's own tables."),
    "outbox": (
        "outbox",
        "Outbox projections: what waits, who works, and in which mode.",
    ),
    "pause": ("operate.control", "Stop a projection's work until it is resumed."),
    "queue": ("queue.commands", "Look into the queue, and put right what waits there."),
    "reset": ("operate.lifecycle", "Clear a projection, to build it again."),
    "resume": ("operate.control", "Let a paused projection go on."),
    "reshard": ("operate.control", "Change how many shards a projection has."),
    "rewind": ("operate.control", "Go back, so that events are applied again."),
    "run": ("run.command", "Run the projections of an app until SIGTERM or SIGINT."),
    "status": ("operate.status", "Show how far each projection is."),
}
"""Each command's module, where it has its name, and what it says of itself first."""


class Commands(click.Group):
    """A group whose commands live in modules of their own, which its own help does not load."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"holdfast.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


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
