"""What commands print: JSON, texts, tables, logs and progress, all of it safe for a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.texts import clean, shown_json, shown_lines
from holdfast.texts import shown as shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as RichTable

T = TypeVar("T")
Cell = str | tuple[str, str]
"""A text, or a text and its style. Rich's markup in it has no effect."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

PIPE_CHARACTERS = 1_000
"""Width of a table on a pipe: nothing is cut for a terminal that is not there."""

LEAST_CHARACTERS = 8
"""Width to which a column of a table is cut at most."""

MAX_RECORD_CHARACTERS = 50_000
"""Maximum length of a log record, with its traceback."""


def print_text(text: str, *, err: bool = False) -> None:
    """Prints a text of one or more lines."""
    click.echo(shown_lines(text), err=err)


def print_json(value: Any) -> None:
    """Prints one JSON document on one line."""
    import msgspec

    click.echo(shown_json(msgspec.json.encode(value).decode()))


def print_result(text: str, as_json: bool, **fields: Any) -> None:
    """Prints the result of a command: the text, or with --json its fields."""
    if as_json:
        print_json(fields)
    else:
        print_text(text)


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


def one_line(text: str, *, max_characters: int | None = None) -> str:
    """The first line of a text; … stands for the rest."""
    first, _, rest = text.strip().partition("\n")
    line = shown(first) + (" …" if rest.strip() else "")
    if max_characters is None or len(line) <= max_characters:
        return line
    return f"{line[:max_characters]}…"


def traceback_lines(text: str) -> Iterator[str]:
    """The lines of a stored traceback, as a terminal may show them."""
    return (shown(line) for line in text.rstrip().splitlines())


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


class Table:
    """A table. Where it is too wide, texts are cut, but never numbers and ids."""

    def __init__(
        self,
        columns: Iterable[str],
        rows: Iterable[Iterable[Cell]],
        *,
        right: Collection[str] = (),
        fold: Collection[str] = (),
    ) -> None:
        """`right` columns are aligned right; cells of `fold` columns may have several lines."""
        from rich.text import Text

        self._columns, self._right, self._fold = list(columns), right, fold
        styled = [[(cell, "") if isinstance(cell, str) else cell for cell in row] for row in rows]
        self._lines = [[Text(shown(text), style=style) for text, style in row] for row in styled]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        from rich import box
        from rich.table import Table as RichTable

        widths = self._widths(options.max_width)
        has_room = sum(widths) + 3 * len(widths) <= options.max_width
        padding = (0, 1) if has_room else (0, 0)
        table = RichTable(box=box.SIMPLE_HEAD, show_edge=has_room, padding=padding)
        for title, width in zip(self._columns, widths, strict=True):
            table.add_column(
                title,
                justify="right" if title in self._right else "left",
                width=width,
                no_wrap=title not in self._fold,
                overflow="fold" if title in self._fold else "ellipsis",
            )
        for line in self._lines:
            table.add_row(*line)
        yield table

    def _widths(self, room: int) -> list[int]:
        """The width of each column, within the room that there is."""
        cells = zip(*self._lines, strict=True) if self._lines else [()] * len(self._columns)
        widths = [
            max(len(title), *(cell.cell_len for cell in column), 0)
            for title, column in zip(self._columns, cells, strict=True)
        ]
        texts = [at for at, title in enumerate(self._columns) if title not in self._right]
        while sum(widths) + len(widths) - 1 > room and texts:
            widest = max(texts, key=lambda at: widths[at])
            if widths[widest] <= LEAST_CHARACTERS:
                break
            widths[widest] -= 1
        return widths


def start_logging(level: int) -> None:
    """Logs to stderr, unless the app's module has set up its own handlers."""
    handler = logging.StreamHandler()
    handler.setFormatter(_SafeFormatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("holdfast").setLevel(level)


class _SafeFormatter(logging.Formatter):
    """For the records of others too, such as of libraries that handlers use."""

    def format(self, record: logging.LogRecord) -> str:
        return shown_lines(clean(super().format(record), MAX_RECORD_CHARACTERS))


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
