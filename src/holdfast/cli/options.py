"""Options that several commands have."""

from __future__ import annotations

import getpass
import math
import os
from collections.abc import Callable
from typing import Any

import click

from holdfast.model.arguments import MAX_SECONDS

Command = Callable[..., Any]
Option = Callable[[Command], Command]
"""A decorator that adds an option to a command."""


def combined(*options: Option) -> Option:
    """One decorator that adds several options, which help lists in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def limit_option(default: int, text: str) -> Option:
    """Adds --limit, which is at least 1."""
    number = click.IntRange(min=1)
    return click.option("--limit", type=number, default=default, metavar="N", help=text)


class Seconds(click.FloatRange):
    """A number of seconds that can be waited for."""

    name = "seconds"

    def __init__(self, *, min: float, min_open: bool = False) -> None:
        super().__init__(min=min, max=MAX_SECONDS, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def os_user() -> str:
    """The name of the operating system's user, or the number of one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, one document a line."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Don't ask.")
note_option = click.option("--note", metavar="TEXT", help="Why, for the audit.")
by_option = click.option(
    "--by", metavar="NAME", default=os_user, show_default="you", help="Who, for the audit."
)
change_options = combined(by_option, note_option, json_option)
"""For a change that is made without a question. Commands take --by and --note as `**audit`."""

confirmed_change_options = combined(by_option, note_option, yes_option, json_option)
"""For a change that `confirm` asks about first."""
