"""What commands print: JSON lines, texts safe for a terminal, logs, progress, and no password."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

_SECRETS = (
    (re.compile(r"(://[^\s/:@]*|\b\w+):(?!//)\S*@"), r"\1:***@"),
    (re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE), r"\1***"),
)


def json_option(function: F) -> F:
    """Adds --json, as `as_json`."""
    text = "Print JSON, one document a line."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def print_json(value: Any) -> None:
    """Prints one JSON document on one line."""
    import msgspec

    click.echo(msgspec.json.encode(value))


def shown(text: str) -> str:
    """Text with what a terminal would obey made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The first line of a text, and whether there is more."""
    first, _, rest = text.strip().partition("\n")
    return shown(first) + (" …" if rest.strip() else "")


def plural(count: int, noun: str) -> str:
    """1 event, 2 events."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def redacted(text: str) -> str:
    """Text without the password of any URL in it: a traceback quotes lines of the user's code."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def start_logging(level: int) -> None:
    """Logs to stderr, unless the app's module has set up handlers of its own."""
    handler = logging.StreamHandler()
    handler.setFormatter(_RedactingFormatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("holdfast").setLevel(level)


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


@contextmanager
def progress_bar(title: str, total: int | None, *, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that is set to a value; without a terminal, nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} " + unit)
        if total
        else TextColumn("{task.completed:,} " + unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda value: progress.update(task, completed=value)
