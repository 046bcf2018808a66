"""What a Projection's handlers can do in their transaction."""

from __future__ import annotations

import asyncio
import pickle
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.app import App
from holdfast.errors import ProjectionFaulted
from holdfast.model.event import Event, NewEvent
from holdfast.model.projection import Projection, Tx, on
from tests.contracts.samples import Counted, counted, fetch, status_of
from tests.contracts.writing import WritingContract

SEEN = "CREATE TABLE seen (id integer PRIMARY KEY, text varchar(100))"
TOTALS = "CREATE TABLE totals (name varchar(10) PRIMARY KEY, amount integer NOT NULL)"


@dataclass
class Noted:
    """A declared row type."""

    id: int
    note: str = ""


class HandlingContract(WritingContract):
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    def test_handlers_run_sql_in_several_tables(self, app: App) -> None:
        p = self.placeholder
        changed = []

        @app.projection
        class Everything(Projection):
            tables = {"seen": SEEN, "totals": TOTALS, "noted": Noted}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                n = event.data.n
                tx.execute(f"INSERT INTO seen VALUES ({p}, {p})", (n, "it's 100 % 'x'"))
                tx.executemany(
                    f"INSERT INTO noted (id, note) VALUES ({p}, {p})",
                    [(10 * n, "ten"), (100 * n, "hundred")],
                )
                if tx.fetch(f"SELECT 1 FROM totals WHERE name = {p}", ("all",)):
                    sql = f"UPDATE totals SET amount = amount + {p}"
                    changed.append(tx.execute(sql, (n,)))
                else:
                    tx.execute(f"INSERT INTO totals VALUES ('all', {p})", (n,))

        app.journal.append("a", [Counted(n) for n in (1, 2, 3)])
        app.catch_up()
        app.journal.append("a", [Counted(4)])
        app.catch_up()
        assert fetch(app, "SELECT * FROM totals") == [("all", 10)]
        assert fetch(app, "SELECT * FROM seen ORDER BY id") == [
            (n, "it's 100 % 'x'") for n in (1, 2, 3, 4)
        ]
        assert fetch(app, "SELECT id, note FROM noted ORDER BY id")[:2] == [
            (10, "ten"),
            (20, "ten"),
        ]
        assert changed == [1, 1, 1]

    def test_an_event_can_be_handed_on_whole(self, app: App) -> None:
        """As JSON for other systems, as a copy, or to another process."""
        handed: list[tuple[Event[Any], bytes, Event[Any], Event[Any]]] = []

        @app.projection
        class Handed(Projection):
            @on("Told")
            def told(self, event: Event[Any], tx: Tx) -> None:
                there = pickle.loads(pickle.dumps(event))
                handed.append((event, msgspec.json.encode(event), deepcopy(event), there))

        app.journal.append("a", [NewEvent({"n": 1}, type="Told")])
        app.journal.append("a", [NewEvent({"n": 2}, type="Told")], metadata={"by": "me"})
        app.catch_up()
        for event, text, *copies in handed:
            assert isinstance(event.id, UUID)
            assert all(copy == event for copy in copies)
            document = msgspec.json.decode(text)
            assert document["id"] == str(event.id)
            assert document["data"] == event.data
            assert document["metadata"] == event.metadata
        assert [event.metadata for event, *_ in handed] == [{}, {"by": "me"}]

    def test_statements_without_parameters(self, app: App) -> None:
        @app.projection
        class Seen(Projection):
            tables = {"seen": SEEN}

            @on("*")
            def any(self, event: Event[Any], tx: Tx) -> None:
                tx.execute("INSERT INTO seen VALUES (1, '100 %')")
                assert tx.fetch("SELECT text FROM seen WHERE text LIKE '%'") == [("100 %",)]
                assert tx.execute("DELETE FROM seen WHERE id > 1") == 0

        app.journal.append("a", [counted(1)])
        app.catch_up()
        assert fetch(app, "SELECT * FROM seen") == [(1, "100 %")]

    def test_handlers_may_be_coroutines(self, app: App) -> None:
        p = self.placeholder

        @app.projection
        class Seen(Projection):
            tables = {"seen": SEEN}

            @on("Counted")
            async def counted(self, event: Event[Any], tx: Tx) -> None:
                await asyncio.sleep(0)
                tx.execute(f"INSERT INTO seen VALUES ({p}, 'x')", (event.data["n"],))

        app.journal.append("a", [counted(n) for n in range(5)])
        app.catch_up()
        assert fetch(app, "SELECT count(*) FROM seen") == [(5,)]

    def test_the_drivers_own_connection_is_in_the_transaction(self, app: App) -> None:
        @app.projection
        class Seen(Projection):
            tables = {"seen": SEEN}

            @on("Counted")
            def counted(self, event: Event[Any], tx: Tx) -> None:
                tx.connection.execute("INSERT INTO seen VALUES (1, 'x')")
                assert tx.fetch("SELECT count(*) FROM seen") == [(1,)]
                raise ValueError("undo it")

        app.journal.append("a", [counted(1)])
        with pytest.raises(ProjectionFaulted):
            app.catch_up()
        assert fetch(app, "SELECT * FROM seen") == []

    def test_a_savepoint_undoes_a_part(self, app: App) -> None:
        @app.projection
        class Seen(Projection):
            tables = {"seen": SEEN}

            @on("Counted")
            def counted(self, event: Event[Any], tx: Tx) -> None:
                tx.execute("INSERT INTO seen VALUES (1, 'x')")
                tx.execute("SAVEPOINT half")
                tx.execute("INSERT INTO seen VALUES (2, 'x')")
                tx.execute("ROLLBACK TO SAVEPOINT half")
                tx.execute("RELEASE SAVEPOINT half")

        app.journal.append("a", [counted(1)])
        app.catch_up()
        assert fetch(app, "SELECT id FROM seen") == [(1,)]

    @pytest.mark.parametrize("fails", [False, True])
    def test_an_append_joins_the_handlers_transaction(self, app: App, fails: bool) -> None:
        @app.projection
        class Forward(Projection):
            tables = {"seen": SEEN}

            @on("Counted")
            def counted(self, event: Event[Any], tx: Tx) -> None:
                tx.execute("INSERT INTO seen VALUES (1, 'x')")
                app.journal.append("forwarded", [Counted(7), Counted(8)], connection=tx)
                app.journal.append("forwarded", [Counted(9)], connection=tx, expected_version=2)
                if fails:
                    raise ValueError("undo both")

        app.journal.append("a", [counted(1)])
        if fails:
            with pytest.raises(ProjectionFaulted, match="undo both"):
                app.catch_up()
        else:
            app.catch_up()
        assert len(fetch(app, "SELECT * FROM seen")) == (0 if fails else 1)
        assert app.journal.stream_version("forwarded") == (0 if fails else 3)

    def test_a_refused_append_leaves_the_transaction_usable(self, app: App) -> None:
        @app.projection
        class Forward(Projection):
            tables = {"seen": SEEN}

            @on("Counted")
            def counted(self, event: Event[Any], tx: Tx) -> None:
                with pytest.raises(Exception, match="expected 5"):
                    app.journal.append("other", [Counted(1)], connection=tx, expected_version=5)
                tx.execute("INSERT INTO seen VALUES (1, 'x')")

        app.journal.append("a", [counted(1)])
        app.catch_up()
        assert len(fetch(app, "SELECT * FROM seen")) == 1

    @pytest.mark.parametrize("way", ["append", "append_async"])
    def test_an_append_of_its_own_works_or_says_why_not(self, app: App, way: str) -> None:
        """A database with one writer can't; it must say so at once instead of waiting for ever."""

        @app.projection
        class Forward(Projection):
            if way == "append":

                @on("Counted")
                def counted(self, event: Event[Any], tx: Tx) -> None:
                    app.journal.append("forwarded", [Counted(1)])
            else:

                @on("Counted")
                async def counted_async(self, event: Event[Any], tx: Tx) -> None:
                    await app.journal.append_async("forwarded", [Counted(1)])

        app.journal.append("a", [counted(1)])
        try:
            app.catch_up(timeout_seconds=20)
        except ProjectionFaulted as fault:
            assert "connection=tx" in str(fault)  # noqa: PT017
            assert app.journal.stream_version("forwarded") == 0
        else:
            assert app.journal.stream_version("forwarded") == 1

    def test_the_journal_can_be_read_in_a_handler(self, app: App) -> None:
        @app.projection
        class Reading(Projection):
            tables = {"seen": SEEN}

            @on("Counted")
            def counted(self, event: Event[Any], tx: Tx) -> None:
                versions = [e.version for e in app.journal.read_stream(event.stream)]
                tx.execute(f"INSERT INTO seen VALUES ({max(versions)}, 'x')")

        app.journal.append("a", [counted(1), counted(2)][:1])
        app.catch_up(timeout_seconds=20)
        assert fetch(app, "SELECT id FROM seen") == [(1,)]

    def test_strictness_makes_an_unknown_type_a_fault(self, app: App) -> None:
        @app.projection(strict=True)
        class Strict(Projection):
            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                return None

        app.journal.append("a", [Counted(1), Counted(2)])
        app.catch_up()
        odd = app.journal.append("a", [Counted(3), Noted(1), Counted(4)])
        with pytest.raises(ProjectionFaulted, match="strict"):
            app.catch_up()
        error = status_of(app, "strict").last_error
        assert error is not None
        assert (error.position, error.event_type) == (odd.positions[1], "Noted")
        assert status_of(app, "strict").position == odd.positions[0]
