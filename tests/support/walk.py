"""The traced walk: the modules and functions of holdfast that one live event passes.

From the read that brings the event to the signal that it is committed, on the threads that do the
work. Run as a script, it prints the walk of each kind and delivery on a PostgreSQL of its own:

    python -m tests.support.walk [--functions]
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import holdfast
from holdfast import App, Event, Projection, SqlProjection, TableProjection, Tx, on
from holdfast.runtime.signals import Committed, Signal
from tests.support.postgres import PostgresServer

ROOT = Path(holdfast.__file__).parent
ENDS = ("runtime/signals.py", "Signals.emit")
READS = {
    "log": ("runtime/run/runner.py", "Runner._read"),
    "outbox": ("runtime/outbox/relay.py", "Relay._claim"),
}
"""Where the walk of each delivery begins."""

HANDED_OVER = "runtime/outbox/relay.py", "Relay._share_out"
"""From here on an executor goes on with the event, while the claimer claims again."""

EVENTS = 10
"""How many events are walked. The last one counts: by then all is warm."""


@dataclass
class Paid:
    amount: int


@dataclass
class Total:
    account: str
    amount: int = 0


class Totals(TableProjection[Total]):
    @on(Paid)
    def paid(self, row: Total, event: Event[Paid]) -> None:
        row.amount += event.data.amount


class Handled(Projection):
    tables: ClassVar = {"handled": "CREATE TABLE handled (account text, amount bigint)"}

    @on(Paid)
    def paid(self, event: Event[Paid], tx: Tx) -> None:
        tx.execute("INSERT INTO handled VALUES (%s, %s)", (event.stream, event.data.amount))


class Summed(SqlProjection):
    tables: ClassVar = {"summed": "CREATE TABLE summed (account text, amount bigint)"}
    events = (Paid,)
    sql = "INSERT INTO summed SELECT stream, amount FROM batch"


WALKS: dict[str, tuple[type, str]] = {
    "TableProjection, from the log": (Totals, "log"),
    "Projection, from the log": (Handled, "log"),
    "SqlProjection, from the log": (Summed, "log"),
    "TableProjection, from the outbox": (Totals, "outbox"),
    "Projection, from the outbox": (Handled, "outbox"),
}


@dataclass
class Walk:
    """The functions that were called, by module, in the order in which they came first."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(module for module, _ in self.calls))

    def __str__(self) -> str:
        return f"{len(self.modules)} modules, {len(self.calls)} functions"


class _Tracer:
    """Notes what runs between the read and the signal, on each thread that is started."""

    def __init__(self, begins: tuple[str, str], projection: type) -> None:
        self._begins, self._threads = begins, f"holdfast {projection.__name__.lower()}"
        self._walk: Walk | None = None
        self.last = Walk()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        name = threading.current_thread().name
        if event != "call" or not (path.startswith(str(ROOT)) and name.startswith(self._threads)):
            return
        called = str(Path(path).relative_to(ROOT)), frame.f_code.co_qualname
        if called == self._begins and not (self._walk and HANDED_OVER in self._walk.calls):
            self._walk = Walk()
        if self._walk is None:
            return
        self._walk.calls[called] += 1
        if called == ENDS and isinstance(frame.f_locals.get("signal"), Committed):
            self.last, self._walk = self._walk, None


def trace(url: str, projection: type, delivery: str) -> Walk:
    """The walk of one live event, from the second on: by then the caches are warm."""
    tracer = _Tracer(READS[delivery], projection)
    with App(url) as app:
        options: dict[str, Any] = {"delivery": "outbox", "concurrency": 1}
        app.projection(**(options if delivery == "outbox" else {}))(projection)
        committed = threading.Semaphore(0)
        app.listen(_releases(committed))
        threading.setprofile(tracer)
        try:
            with app.running():
                for _ in range(EVENTS):
                    app.journal.append("a", [Paid(1)])
                    if not committed.acquire(timeout=30):
                        raise TimeoutError("the event was not committed")
        finally:
            threading.setprofile(None)
    return tracer.last


def _releases(committed: threading.Semaphore) -> Callable[[Signal], None]:
    def heard(signal: Signal) -> None:
        if isinstance(signal, Committed):
            committed.release()

    return heard


def described(name: str, walk: Walk) -> str:
    """A walk as docs/explanation/architecture.md shows it."""
    modules = ", ".join(f"`{module}`" for module in walk.modules)
    return f"- **{name}**, {walk}: {modules}."


def main() -> None:
    with PostgresServer() as server:
        for name, (projection, delivery) in WALKS.items():
            walk = trace(server.create_database(), projection, delivery)
            print(described(name, walk))
            if "--functions" in sys.argv:
                for module, calls in groupby(sorted(walk.calls), key=lambda called: called[0]):
                    print(f"    {module}: {', '.join(function for _, function in calls)}")


if __name__ == "__main__":
    main()
