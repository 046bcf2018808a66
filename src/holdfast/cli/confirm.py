"""The question before a change."""

from __future__ import annotations

import sys

import click

from holdfast.errors import ConfigError


def confirm(question: str, *, yes: bool, from_pipe: bool = False) -> None:
    """Asks whether to go on, and aborts unless the operator agrees.

    Refuses to ask where stdin is not a terminal, unless an answer may come `from_pipe`.
    """
    if yes:
        return
    if not from_pipe and not sys.stdin.isatty():
        click.echo(question, err=True)
        raise ConfigError("stdin is not a terminal, so nobody can answer; add --yes to go on")
    click.confirm(f"{question}\nGo on?", abort=True, err=True)
