"""The app that the crash tests run: projections in which a lost, doubled or swapped event shows.

Nothing here is idempotent. Rows are incremented and lines have no unique key. Every application
leaves the event behind, in the row that it changed or in a line of its own, in the transaction that
applies it. So the tables say which events were applied, and in which order within a lane.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from holdfast import App, Event, Policy, Poll, Projection, SqlProjection, TableProjection, Tx, on
from holdfast.catalog import ProjectionSettings
from holdfast.kafka import KafkaSource
from holdfast.runtime.store.clock import Clock

Name = Literal["totals", "keyed", "ledger", "tally"]
PROJECTIONS: tuple[Name, ...] = ("ledger", "tally", "totals")
"""Of an app that does not say which."""
LANE_KINDS: tuple[Name, ...] = ("totals", "keyed", "ledger")
"""Rows by stream; rows by another key, which is then the lane; handlers with lines."""
STREAM_KINDS: tuple[Name, ...] = ("totals", "ledger")
"""Those whose lanes are streams, as the outbox and Kafka want them."""

Hook = Callable[[Event[Any]], None]


@dataclass
class Moved:
    """An amount for a stream, and for the row that `key` names.

    A test that spoils events names them by `amount`. The other fields are names of files: while
    the file exists, the ledger stays in its transaction (`hold`), totals stay where they are in
    memory (`fold`), the ledger finds no connection to somewhere (`fail`), or runs a statement that
    takes minutes (`query`).
    """

    amount: int
    key: str = ""
    hold: str = ""
    fold: str = ""
    fail: str = ""
    query: str = ""


@dataclass
class Total:
    """`steps`: the events that were applied to this row, in the order in which they were.

    Versions of the stream, or positions where the row has events of several streams.
    """

    name: str
    amount: int = 0
    count: int = 0
    steps: list[int] = field(default_factory=list)


class OpenApp(Protocol):
    def __call__(self, url: str, *, clock: Clock | None = None) -> App: ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a test does in the middle of an event.

    `on_folding` and `on_handling` are called before the work of an event, `after` when its work is
    done and not yet committed. `slow_seconds` is spent after the work of every third event.
    """

    on_folding: Hook
    on_handling: Hook
    after: Hook
    slow_seconds: float

    def finish(self, event: Event[Any]) -> None:
        if self.slow_seconds and event.position % 3 == 0:
            time.sleep(self.slow_seconds)
        self.after(event)


def nothing(_: Event[Any]) -> None:
    return


def build_app(
    url: str,
    *projections: Name,
    source: KafkaSource | None = None,
    concurrency: int | None = None,
    shards: int = 1,
    policy: Policy | None = None,
    poll: Poll | None = None,
    clock: Clock | None = None,
    writes: bool = False,
    slow_seconds: float = 0.0,
    on_folding: Hook = nothing,
    on_handling: Hook = nothing,
    after: Hook = nothing,
    open_app: OpenApp = App,
) -> App:
    """An app with these projections, or with PROJECTIONS.

    They read the journal, or `source`, or with `concurrency` the outbox. `writes`: the ledger does
    not wait for its statements. `shards`: of all but the tally.
    """
    app = open_app(url, clock=clock)
    hooks = Hooks(on_folding, on_handling, after, slow_seconds)
    is_sqlite = url.startswith("sqlite")
    kinds: dict[Name, type[Any]] = {
        "totals": totals(hooks),
        "keyed": keyed(hooks),
        "ledger": ledger(hooks, is_sqlite=is_sqlite, writes=writes),
        "tally": tally(is_sqlite=is_sqlite),
    }
    for name in projections or PROJECTIONS:
        settings: ProjectionSettings = {
            "source": source,
            "policy": policy,
            "poll": poll,
            "shards": 1 if name == "tally" else shards,
        }
        if concurrency is not None:
            settings |= {"delivery": "outbox", "concurrency": concurrency}
        app.projection(**settings)(kinds[name])
    return app


def totals(hooks: Hooks) -> type[TableProjection[Total]]:
    class Totals(TableProjection[Total]):
        """Rows by stream, folded in memory."""

        @on(Moved)
        def moved(self, row: Total, event: Event[Moved]) -> None:
            _step(row, event, event.version, hooks)

    return Totals


def keyed(hooks: Hooks) -> type[TableProjection[Total]]:
    class Keyed(TableProjection[Total]):
        """Rows by what the event says, across streams."""

        def key(self, event: Event[Moved]) -> str:
            return event.data.key

        @on(Moved)
        def moved(self, row: Total, event: Event[Moved]) -> None:
            _step(row, event, event.position, hooks)

    return Keyed


def _step(row: Total, event: Event[Moved], number: int, hooks: Hooks) -> None:
    hooks.on_folding(event)
    stay(event.data.fold)
    row.amount += event.data.amount
    row.count += 1
    row.steps.append(number)
    hooks.finish(event)


def ledger(hooks: Hooks, *, is_sqlite: bool, writes: bool) -> type[Projection]:
    mark = "?" if is_sqlite else "%s"
    columns = "position, stream, version, amount, process"
    add_line = f"INSERT INTO ledger ({columns}) VALUES ({', '.join([mark] * 5)})"
    count = f"UPDATE ledger_count SET n = n + 1 WHERE stream = {mark}"
    count_first = f"INSERT INTO ledger_count VALUES ({mark}, 1)"
    count_any = f"{count_first} ON CONFLICT (stream) DO UPDATE SET n = ledger_count.n + 1"

    class Ledger(Projection):
        """A line for each event, and by which process, and a count for each stream."""

        tables: ClassVar = {
            "ledger": f"CREATE TABLE ledger (entry {_entry(is_sqlite=is_sqlite)}, position bigint,"
            " stream text, version bigint, amount bigint, process bigint)",
            "ledger_count": "CREATE TABLE ledger_count (stream text PRIMARY KEY, n bigint)",
        }

        @on(Moved)
        def moved(self, event: Event[Moved], tx: Tx) -> None:
            hooks.on_handling(event)
            data = event.data
            line = (event.position, event.stream, event.version, data.amount, os.getpid())
            if writes:
                tx.write(add_line, line)
                tx.write(count_any, (event.stream,))
            else:
                tx.execute(add_line, line)
                if not tx.execute(count, (event.stream,)):
                    tx.execute(count_first, (event.stream,))
            stay(data.hold)
            if data.query and Path(data.query).exists():
                tx.fetch("SELECT pg_sleep(300)")
            if data.fail and Path(data.fail).exists():
                reached(Path(data.fail), os.getpid()).touch()
                raise ConnectionError("the bank is away")
            hooks.finish(event)

    return Ledger


def tally(*, is_sqlite: bool) -> type[SqlProjection]:
    class Tally(SqlProjection):
        """A line for each event, and a sum for each stream, written by the database itself."""

        tables: ClassVar = {
            "tally": f"CREATE TABLE tally (entry {_entry(is_sqlite=is_sqlite)}, position bigint,"
            " stream text)",
            "tally_sum": "CREATE TABLE tally_sum (stream text PRIMARY KEY, n bigint, amount int8)",
        }
        events = (Moved,)
        sql = (
            "INSERT INTO tally (position, stream)"
            " SELECT position, stream FROM batch ORDER BY position",
            "INSERT INTO tally_sum AS kept"
            " SELECT stream, count(*), sum(amount) FROM batch WHERE true GROUP BY stream"
            " ON CONFLICT (stream) DO UPDATE"
            " SET n = kept.n + excluded.n, amount = kept.amount + excluded.amount",
        )

    return Tally


def _entry(*, is_sqlite: bool) -> str:
    return (
        "INTEGER PRIMARY KEY AUTOINCREMENT" if is_sqlite else "bigint GENERATED ALWAYS AS IDENTITY"
    )


def stay(path: str) -> None:
    """Says that this process is here, and returns when the file is gone.

    If the file names any processes, the others return at once.
    """
    hold = Path(path)
    while path and (names := _held_by(hold)) is not None and (not names or os.getpid() in names):
        reached(hold, os.getpid()).touch()
        time.sleep(0.005)


def reached(hold: Path, process: int) -> Path:
    """The file that says that a process has come to where it is held."""
    return hold.with_name(f"{hold.name}.{process}")


def _held_by(hold: Path) -> set[int] | None:
    """The processes that a file names; None if it is not there."""
    try:
        return {int(name) for name in hold.read_text().split()}
    except FileNotFoundError:
        return None
