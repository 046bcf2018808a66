"""A chart of a run: catching up, a bar for each contestant, as an SVG that needs nothing else.

It brings its own background and follows the reader's preference for light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

PANELS = {"catch-up/postgres": "PostgreSQL", "catch-up/sqlite": "SQLite"}
NAMES = {
    "table": "holdfast, TableProjection",
    "table-10k": "holdfast, TableProjection, 10,000 per flush",
    "table-50k": "holdfast, TableProjection, 50,000 per flush",
    "shards": "holdfast, TableProjection in two shards",
    "shards-10k": "holdfast, the same, 10,000 per flush",
    "sql": "holdfast, SqlProjection",
    "handlers": "holdfast, Projection with SQL handlers",
    "handlers-pipelined": "holdfast, Projection that is pipelined",
    "hand-written": "hand-written loop, 500 per transaction",
    "hand-written-pipeline": "hand-written loop, pipelined",
    "set-based": "set-based SQL, 10,000 per statement",
    "set-based-50k": "set-based SQL, 50,000 per statement",
}
OTHERS = ("hand-written", "set-based", "eventsource-py", "eventsourcing")
"""How the names of contestants begin that are not holdfast."""

WIDTH = 800
LEFT, RIGHT = 304, 84
"""What the bars leave for the names on one side, and for the last figure on the other."""
ROW, BAR = 26, 16
TOP, PANEL_HEAD, PANEL_GAP, BOTTOM = 56, 30, 14, 52

STYLE = """
  .back { fill: #ffffff; } .grid { stroke: #d0d7de; } .text { fill: #1f2328; }
  .faint { fill: #59636e; } .ours { fill: #0a7d55; } .others { fill: #8c959f; }
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
  .title { font-size: 16px; font-weight: 600; } .panel { font-weight: 600; }
  .small { font-size: 12px; } .end { text-anchor: end; } .middle { text-anchor: middle; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; } .grid { stroke: #30363d; } .text { fill: #e6edf3; }
    .faint { fill: #9198a1; } .ours { fill: #2fbf87; } .others { fill: #6e7681; }
  }
"""


class NothingToDraw(Exception):
    """The results have no figure that belongs into the chart."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One contestant on one database."""

    contestant: str
    events_per_second: float

    @property
    def name(self) -> str:
        return NAMES.get(self.contestant, self._fallback)

    @property
    def is_ours(self) -> bool:
        return not self.contestant.startswith(OTHERS)

    @property
    def _fallback(self) -> str:
        return f"holdfast, {self.contestant}" if self.is_ours else self.contestant


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic scale over whole decades."""

    low: int
    high: int
    """Powers of ten."""

    def x(self, value: float) -> float:
        """Where a value is, from the left edge of the picture."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def chart(results: Mapping[str, Any]) -> str:
    """The SVG of a run's results, as `--json` writes them."""
    panels = {title: found for group, title in PANELS.items() if (found := _bars(results, group))}
    if not panels:
        raise NothingToDraw(f"the results have no case of {' or '.join(PANELS)}")
    axis = _axis([bar.events_per_second for bars in panels.values() for bar in bars])
    body: list[str] = []
    y = float(TOP)
    for title, bars in panels.items():
        body += _panel(title, bars, axis, y)
        y += PANEL_HEAD + ROW * len(bars) + PANEL_GAP
    height = round(y - PANEL_GAP + BOTTOM)
    grid = _grid(axis, top=TOP + PANEL_HEAD - 6, bottom=y - PANEL_GAP)
    title = "Catching up: events per second"
    described = "; ".join(
        f"{title}: " + ", ".join(f"{bar.name} {bar.events_per_second:,.0f}" for bar in bars)
        for title, bars in panels.items()
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(described)}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
            _text(16, 28, title, "text title"),
            _text(16, 46, "Each line to the right is ten times as fast.", "faint small"),
            *grid,
            *body,
            _text(16, height - 12, _caption(results), "faint small"),
            "</svg>\n",
        )
    )


def _bars(results: Mapping[str, Any], group: str) -> list[Bar]:
    """The contestants of a group, the fastest first."""
    found = [
        Bar(case["name"].rpartition("/")[2], case["events_per_second"])
        for case in results["cases"]
        if case["name"].rpartition("/")[0] == group
    ]
    return sorted(found, key=lambda bar: -bar.events_per_second)


def _axis(values: Sequence[float]) -> Axis:
    """From a decade below the slowest, so that its bar can be seen, to one above the fastest."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(low - 1 if min(values) < 2 * 10**low else low, max(high, low + 1))


def _grid(axis: Axis, *, top: float, bottom: float) -> Iterable[str]:
    for power in range(axis.low, axis.high + 1):
        x = axis.x(10.0**power)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.0f}" y2="{bottom:.0f}"/>'
        yield _text(x, bottom + 16, f"{10**power:,}", "faint small middle")


def _panel(title: str, bars: Sequence[Bar], axis: Axis, y: float) -> Iterable[str]:
    yield _text(16, y + 14, title, "text panel")
    for row, bar in enumerate(bars):
        top = y + PANEL_HEAD + row * ROW
        end = axis.x(bar.events_per_second)
        look = "ours" if bar.is_ours else "others"
        baseline = top + BAR - 4
        yield _text(LEFT - 8, baseline, bar.name, "text end")
        yield (
            f'<rect class="{look}" x="{LEFT}" y="{top:.0f}" width="{end - LEFT:.1f}"'
            f' height="{BAR}" rx="2"/>'
        )
        yield _text(end + 6, baseline, f"{bar.events_per_second:,.0f}", "text small")


def _caption(results: Mapping[str, Any]) -> str:
    environment, scale = results["environment"], results["scale"]
    times = "one round" if scale["rounds"] == 1 else f"medians of {scale['rounds']} rounds"
    if scale["more_rounds"]:
        times += " or more"
    return (
        f"{times}, {environment['cpus']} processors, Python {environment['python']}, "
        "fsync on, client and server on the same machine"
    )


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
