"""What commands print: JSON, texts safe for a terminal, tables, logs, progress, and no password."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

T = TypeVar("T")
Cell = str | tuple[str, str]
"""A text, or a text and its style. Rich's markup in it has no effect."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

PIPE_CHARACTERS = 1_000
"""Width of a table on a pipe: nothing is cut for a terminal that is not there."""

_SECRETS = (
    (re.compile(r"(://[^\s/:@]*|\b\w+):(?!//)\S*@"), r"\1:***@"),
    (re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE), r"\1***"),
)


def print_json(value: Any) -> None:
    """Prints one JSON document on one line."""
    import msgspec

    click.echo(msgspec.json.encode(value))


def print_result(text: str, as_json: bool, **fields: Any) -> None:
    """Prints the result of a command: the text, or with --json its fields."""
    if as_json:
        print_json(fields)
    else:
        click.echo(text)


def print_rows(
    rows: Sequence[T],
    view: Callable[[Sequence[T]], RenderableType],
    empty: str,
    as_json: bool,
    **fields: Any,
) -> None:
    """Prints rows as they are viewed, or with --json the fields; without rows, the text `empty`."""
    if as_json:
        print_json(fields)
    elif rows:
        stdout_console().print(view(rows))
    else:
        click.echo(empty)


def shown(text: str) -> str:
    """The text with control characters escaped, so that a terminal does not obey them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str, *, max_characters: int | None = None) -> str:
    """The first line of a text; … stands for the rest."""
    first, _, rest = text.strip().partition("\n")
    line = shown(first) + (" …" if rest.strip() else "")
    if max_characters is None or len(line) <= max_characters:
        return line
    return f"{line[:max_characters]}…"


def utc(at: datetime) -> str:
    """A time in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """A duration in its largest unit: 5 min, 2 h."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def plural(count: int, noun: str) -> str:
    """1 event, 2 events."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def stdout_console() -> Console:
    """A console as wide as the terminal; on a pipe, as wide as the table needs."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_CHARACTERS)


def table_of(
    columns: Iterable[str],
    rows: Iterable[Iterable[Cell]],
    *,
    right: Collection[str] = (),
    fold: Collection[str] = (),
) -> Table:
    """A table whose columns may be aligned right, or have cells of several lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for title in columns:
        table.add_column(
            title,
            justify="right" if title in right else "left",
            no_wrap=title not in fold,
            overflow="fold" if title in fold else "ellipsis",
        )
    for row in rows:
        cells = [(cell, "") if isinstance(cell, str) else cell for cell in row]
        table.add_row(*(Text(shown(text), style=style) for text, style in cells))
    return table


def redacted(text: str) -> str:
    """The text without passwords: a traceback quotes lines of the user's code, URLs among them."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def start_logging(level: int) -> None:
    """Logs to stderr, unless the app's module has set up its own handlers."""
    handler = logging.StreamHandler()
    handler.setFormatter(_RedactingFormatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("holdfast").setLevel(level)


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


@contextmanager
def progress_bar(title: str, total: int | None, *, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; the function sets its value. Without a terminal, nothing."""
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
