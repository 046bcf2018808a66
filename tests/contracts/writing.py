"""Statements that a handler does not wait for: they come in order, and whoever looks sees them."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.model.event import Event
from holdfast.model.projection import Projection, Tx, on
from tests.contracts.samples import Counted, fetch
from tests.contracts.writing_failing import WritingFailingContract
from tests.contracts.writing_samples import EVENTS, ROWS

CHAIN = "CREATE TABLE chain (value text)"


class WritingContract(WritingFailingContract):
    """Part of the contract about handlers."""

    def test_everything_comes_in_order(self, app: App, groups: None) -> None:
        p = self.placeholder
        add = f"UPDATE chain SET value = value || CAST({p} AS text) || ' '"

        @app.projection
        class Chain(Projection):
            tables: ClassVar = {"chain": CHAIN}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                n = event.data.n
                if n == 0:
                    tx.write("INSERT INTO chain VALUES ('')")
                tx.write(add, (n,))
                match n % 5:
                    case 1:
                        assert tx.execute(add, (n,)) == 1
                    case 2:
                        tx.executemany(add, [(n,), (n + 1,)])
                    case 3:
                        tx.connection.execute(add, (n,))
                tx.write(add, (n + 2,))

        self.append(app)
        app.catch_up()
        ((value,),) = fetch(app, "SELECT value FROM chain")
        between = {1: [0], 2: [0, 1], 3: [0]}
        assert [int(n) for n in value.split()] == [
            n + step for n in range(EVENTS) for step in (0, *between.get(n % 5, []), 2)
        ]

    @pytest.mark.parametrize("way", ["fetch", "connection", "thread", "await"])
    def test_whoever_looks_sees_what_is_written(self, app: App, groups: None, way: str) -> None:
        count = "SELECT count(*) FROM written"
        insert = f"INSERT INTO written VALUES ({self.placeholder}, 'x')"
        seen: list[int] = []

        @app.projection
        class Written(Projection):
            tables: ClassVar = {"written": ROWS}

            @on(Counted)
            async def counted(self, event: Event[Counted], tx: Tx) -> None:
                if way == "await":
                    await asyncio.sleep(0)
                tx.write(insert, (event.data.n,))
                match way:
                    case "connection":
                        connection = tx.connection
                        tx.write(insert, (-event.data.n - 1,))
                        rows = connection.execute(count).fetchall()
                    case "thread":
                        found: list[Any] = []
                        thread = Thread(target=lambda: found.extend(tx.fetch(count)))
                        if self.has_one_thread:
                            thread.run()
                        else:
                            thread.start()
                            thread.join()
                        rows = found
                    case _:
                        rows = tx.fetch(count)
                seen.append(rows[0][0])

            has_one_thread = self.placeholder == "?"  # SQLite's connections stay in theirs.

        self.append(app, 50)
        app.catch_up()
        each = 2 if way == "connection" else 1
        assert seen == [each * (n + 1) for n in range(50)]
