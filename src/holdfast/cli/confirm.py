"""What commands that change something have in common: who, why, and the question before it."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

yes_option = click.option("--yes", "-y", is_flag=True, help="Don't ask.")
note_option = click.option("--note", metavar="TEXT", help="Why, for the audit.")


def by_option(function: F) -> F:
    """Adds --by, whose default is the user that the operating system knows."""
    return click.option(
        "--by", metavar="NAME", default=os_user, help="Who, for the audit; you, by default."
    )(function)


def os_user() -> str:
    """The user's name, even where the system has none for the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def confirm(what: str, *, yes: bool) -> None:
    """Asks before a change. Where nobody can answer, refuses."""
    if yes:
        return
    if not sys.stdin.isatty():
        click.echo(what, err=True)
        raise ConfigError("nobody is there to be asked; to go on without a question, add --yes")
    click.confirm(f"{what}\nGo on?", abort=True, err=True)
