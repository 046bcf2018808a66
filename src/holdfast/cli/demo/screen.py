"""What the demo shows: a table that changes on a terminal, lines of text on a pipe."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from holdfast.cli.operate.status_view import view_of
from holdfast.cli.output import PIPE_CHARACTERS
from holdfast.runtime.status import ProjectionStatus

LINE_INTERVAL_SECONDS = 1.0
"""Interval of lines on a pipe."""


class Screen:
    """Tells what happens, and shows the status of the projections."""

    def __init__(self, *, to_stderr: bool) -> None:
        plain = Console(stderr=to_stderr)
        width = None if plain.is_terminal else PIPE_CHARACTERS
        self.console = Console(stderr=to_stderr, width=width)
        self._live: Live | None = None
        self._shown_at = 0.0

    def chapter(self, title: str) -> None:
        """Begins a chapter of the story."""
        self.close_table()
        if self.console.is_terminal:
            self.console.print(Rule(Text(title, style="bold"), align="left"))
        else:
            self.say(f"== {title}")

    def say(self, text: str, style: str = "") -> None:
        self.close_table()
        self.console.print(Text(text, style=style))

    def show(self, statuses: Sequence[ProjectionStatus], note: str) -> None:
        """Shows the projections in a table, or from time to time in a line."""
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False)
                self._live.start()
            view = view_of(statuses, [status.projection for status in statuses])
            self._live.update(Group(view, Text(f"  {note}")), refresh=True)
        elif time.monotonic() - self._shown_at >= LINE_INTERVAL_SECONDS:
            self._shown_at = time.monotonic()
            where = ", ".join(f"{s.projection} {s.state} at {s.position:,}" for s in statuses)
            self.console.print(Text(f"   {note}; {where}"))

    def close_table(self) -> None:
        """Leaves the table as it is; the next one is drawn below."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._shown_at = 0.0
