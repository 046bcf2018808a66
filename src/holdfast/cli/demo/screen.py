"""What the demo shows: a table that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from holdfast.cli.operate.status_view import view_of
from holdfast.cli.output import PIPE_CHARACTERS
from holdfast.runtime.status import ProjectionStatus

LINE_SECONDS = 1.0
"""How often a plain line is printed where no table can change."""


class Screen:
    """Says what happens, and shows the projections' statuses in between."""

    def __init__(self, *, to_stderr: bool) -> None:
        plain = Console(stderr=to_stderr)
        self.console = (
            plain if plain.is_terminal else Console(stderr=to_stderr, width=PIPE_CHARACTERS)
        )
        self._live: Live | None = None
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_table()

    def chapter(self, title: str) -> None:
        """Begins a new part of the story."""
        self._end_table()
        if self.console.is_terminal:
            self.console.print(Rule(Text(title, style="bold"), align="left"))
        else:
            self.say(f"== {title}")

    def say(self, text: str, style: str = "") -> None:
        self._end_table()
        self.console.print(Text(text, style=style))

    def show(self, statuses: Sequence[ProjectionStatus], note: str) -> None:
        """Shows where the projections are, as often as people can read it."""
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, auto_refresh=False)
                self._live.start()
            view = view_of(statuses, [status.projection for status in statuses])
            self._live.update(Group(view, Text(f"  {note}")), refresh=True)
        elif time.monotonic() - self._shown_at >= LINE_SECONDS:
            self._shown_at = time.monotonic()
            where = ", ".join(f"{s.projection} {s.state} at {s.position:,}" for s in statuses)
            self.console.print(Text(f"   {note}; {where}"))

    def _end_table(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._shown_at = 0.0
