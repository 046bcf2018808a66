"""The question before a change."""

from __future__ import annotations

import sys

import click

from holdfast.cli.output import print_text
from holdfast.errors import ConfigError
from holdfast.texts import shown_lines


def confirm(question: str, *, yes: bool) -> None:
    """Asks whether to go on, and aborts unless the operator agrees.

    Refuses to ask where stdin is not a terminal: what comes from a pipe was not meant as an answer.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        print_text(question, err=True)
        raise ConfigError("stdin is not a terminal, so nobody can answer; add --yes to go on")
    click.confirm(f"{shown_lines(question)}\nGo on?", abort=True, err=True)
