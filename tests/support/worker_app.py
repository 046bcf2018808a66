"""The app that the crash tests run: projections in which a lost, doubled or swapped event shows.

Nothing here is idempotent. Rows are incremented, the ledger has no unique key, and `chain` depends
on the order of the events, so whatever goes wrong stays visible in the tables.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from holdfast import App, Event, Poll, Projection, SqlProjection, TableProjection, Tx, on


@dataclass
class Moved:
    """`hold` names a file: the ledger's handler stays in its transaction while the file exists.

    `query` names one too: if it exists, the handler runs a statement that takes minutes.
    """

    amount: int
    hold: str = ""
    query: str = ""


@dataclass
class Total:
    account: str
    amount: int = 0
    events: int = 0
    chain: int = 0


def chained(chain: int, position: int) -> int:
    """A number that tells in which order positions came."""
    return (chain * 31 + position) % (2**61 - 1)


def build_app(
    url: str,
    *,
    slow_seconds: float = 0.0,
    writes: bool = False,
    shards: int = 1,
    poll: Poll | None = None,
    on_handling: Callable[[Event[Any]], None] = lambda _: None,
    on_folding: Callable[[Event[Any]], None] = lambda _: None,
) -> App:
    """`slow_seconds` is spent inside the ledger's transaction at every third event.

    `writes`: the ledger does not wait for its statements. `shards`: of the totals and the ledger.

    `on_handling` is called there too, before the first write, and `on_folding` where the totals
    are in memory and no transaction is open.
    """
    app = App(url)
    is_sqlite = url.startswith("sqlite")
    mark = "?" if is_sqlite else "%s"
    entry = (
        "INTEGER PRIMARY KEY AUTOINCREMENT" if is_sqlite else "bigint GENERATED ALWAYS AS IDENTITY"
    )

    @app.projection(poll=poll, shards=shards)
    class Totals(TableProjection[Total]):
        """Each account's sum, folded in memory."""

        @on(Moved)
        def moved(self, row: Total, event: Event[Moved]) -> None:
            on_folding(event)
            row.amount += event.data.amount
            row.events += 1
            row.chain = chained(row.chain, event.position)

    @app.projection(poll=poll, shards=shards)
    class Ledger(Projection):
        """One line an event, and a count per account, written inside the transaction."""

        tables: ClassVar = {
            "ledger": "CREATE TABLE ledger"
            f" (entry {entry}, position bigint, stream text, version bigint)",
            "ledger_count": "CREATE TABLE ledger_count (stream text PRIMARY KEY, n bigint)",
        }

        @on(Moved)
        def moved(self, event: Event[Moved], tx: Tx) -> None:
            on_handling(event)
            run = tx.write if writes else tx.execute
            run(
                f"INSERT INTO ledger (position, stream, version) VALUES ({mark}, {mark}, {mark})",
                (event.position, event.stream, event.version),
            )
            if slow_seconds and event.position % 3 == 0:
                time.sleep(slow_seconds)
            if event.data.hold:
                stay(Path(event.data.hold))
            if event.data.query and Path(event.data.query).exists():
                tx.fetch("SELECT pg_sleep(300)")
            if writes:
                tx.write(
                    f"INSERT INTO ledger_count VALUES ({mark}, 1)"
                    " ON CONFLICT (stream) DO UPDATE SET n = ledger_count.n + 1",
                    (event.stream,),
                )
                return
            increment = f"UPDATE ledger_count SET n = n + 1 WHERE stream = {mark}"
            if not tx.execute(increment, (event.stream,)):
                tx.execute(f"INSERT INTO ledger_count VALUES ({mark}, 1)", (event.stream,))

    @app.projection(poll=poll)
    class Tally(SqlProjection):
        """A line an event, and a sum per account, written by the database itself."""

        tables: ClassVar = {
            "tally": f"CREATE TABLE tally (entry {entry}, position bigint, stream text)",
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

    return app


def stay(hold: Path) -> None:
    """Says that it is here, and returns when the file is gone."""
    hold.with_suffix(".reached").touch()
    while hold.exists():
        time.sleep(0.005)
