"""What a database does about a projection's tables: makes, widens, refuses, and clears them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from copy import copy
from dataclasses import field, make_dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from holdfast.errors import SchemaError
from holdfast.model.definition import Definition, Fold
from holdfast.model.rows.row_type import TableSpec
from holdfast.runtime.store.transaction import RowChanges
from holdfast.sql.database import Database, quote
from holdfast.sql.operate import lifecycle as upkeep
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.session import SqlSession
from tests.contracts.rows import VALUES, as_stored
from tests.contracts.samples import concurrently, handler_definition, table_definition

BY_ME = ChangedBy("me", datetime(2026, 1, 1, tzinfo=UTC))

Row = make_dataclass("Row", [("id", str), ("n", int, 0)])
ROW = table_definition(Row)
DDL = "CREATE TABLE things (id text PRIMARY KEY, n integer)"
CHANGES: dict[str, Definition] = {
    "column 'n' was int, now it is str": table_definition(
        make_dataclass("Row", [("id", str), ("n", str, "")])
    ),
    "column 'n' was int, now it is int | None": table_definition(
        make_dataclass("Row", [("id", str), ("n", int | None, None)])
    ),
    "its key was ['id'], now it is ['id', 'n']": table_definition(Row, key_fields=("id", "n")),
    "its DDL has changed": handler_definition({"things": DDL}),
}


class TableContract:
    """Needs a fixture `database`: an empty, migrated database."""

    @pytest.fixture
    def database(self) -> Database:
        raise NotImplementedError

    @pytest.fixture
    def session(self, database: Database) -> Iterator[SqlSession]:
        with closing(SqlSession(database)) as session:
            yield session

    def test_a_table_is_made_once(self, session: SqlSession) -> None:
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        session.prepare(ROW)
        assert _load(session, ROW) == {("a",): ("a", 1)}

    def test_a_table_is_made_once_by_many(self, database: Database) -> None:
        def prepare(_: int) -> None:
            with closing(SqlSession(database)) as session:
                session.prepare(ROW)

        concurrently(4, prepare)
        with closing(SqlSession(database)) as session:
            assert _load(session, ROW) == {}

    @pytest.mark.parametrize("kind", VALUES)
    def test_a_new_column_begins_with_its_default(self, session: SqlSession, kind: str) -> None:
        annotation, values = VALUES[kind]
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        for count in range(1, len(values) + 1):
            added = [
                (f"c{n}", annotation, field(default_factory=partial(copy, value)))
                for n, value in enumerate(values[:count])
            ]
            wider = table_definition(make_dataclass("Row", [("id", str), ("n", int, 0), *added]))
            session.prepare(wider)
        assert _load(session, wider) == {("a",): ("a", 1, *map(as_stored, values))}
        _write(session, wider, "b", 2, *values)
        assert len(_load(session, wider)) == 2

    @pytest.mark.parametrize("kind", VALUES)
    def test_a_new_column_begins_with_none(self, session: SqlSession, kind: str) -> None:
        annotation, values = VALUES[kind]
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        maybe = annotation | None
        added = [("x", maybe, None), ("y", maybe, field(default_factory=lambda: values[-1]))]
        wider = table_definition(make_dataclass("Row", [("id", str), *added, ("n", int, 0)]))
        session.prepare(wider)
        assert _load(session, wider) == {("a",): ("a", None, as_stored(values[-1]), 1)}

    def test_fields_may_change_places(self, session: SqlSession) -> None:
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        moved = make_dataclass("Row", [("n", int, 0), ("id", str, "")])
        session.prepare(turned := table_definition(moved, key_fields=("id",)))
        assert _load(session, turned) == {("a",): (1, "a")}

    @pytest.mark.parametrize("reason", CHANGES)
    def test_a_change_that_needs_a_rebuild_is_refused(
        self, database: Database, session: SqlSession, reason: str
    ) -> None:
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        with pytest.raises(SchemaError) as caught:
            session.prepare(CHANGES[reason])
        assert reason in str(caught.value)
        assert "holdfast reset things" in str(caught.value)
        assert _load(session, ROW) == {("a",): ("a", 1)}
        session.prepare(ROW)  # The change can be taken back.
        assert upkeep.reset(database, CHANGES[reason], BY_ME) == ["things"]
        session.prepare(CHANGES[reason])
        assert _count(session, "things") == 0

    @pytest.mark.parametrize("kind", VALUES)
    def test_columns_of_a_later_version_are_left_alone(
        self, session: SqlSession, kind: str
    ) -> None:
        """Whether the later version has made the table, or has added columns to it."""
        annotation, values = VALUES[kind]
        x = ("x", annotation, field(default_factory=partial(copy, values[0])))
        y = ("y", annotation | None, None)
        fields: list[tuple[str, Any, Any] | tuple[str, Any]] = [("id", str), ("n", int, 0)]
        wide = table_definition(make_dataclass("Row", [*fields, x]))
        wider = table_definition(make_dataclass("Row", [*fields, x, y]))
        session.prepare(wide)
        session.prepare(wider)
        _write(session, wider, "a", 1, values[-1], values[-1])
        for definition in (ROW, ROW):
            session.prepare(definition)
            _write(session, definition, "b", 2)
            _write(session, definition, "a", 3)
        session.prepare(wider)
        one, last = as_stored(values[0]), as_stored(values[-1])
        assert _load(session, wider) == {("a",): ("a", 3, last, last), ("b",): ("b", 2, one, None)}

    def test_a_column_without_a_default_is_needed(self, session: SqlSession) -> None:
        session.prepare(ROW)
        narrow = table_definition(make_dataclass("Row", [("id", str)]))
        session.prepare(narrow)
        if session.database.dialect == "postgres":
            _run(session, "ALTER TABLE things ALTER n DROP DEFAULT")
            with pytest.raises(SchemaError, match="'n' is no longer declared, and has no default"):
                session.prepare(narrow)
        _run(session, "ALTER TABLE things DROP COLUMN n")  # By hand: then it is forgotten.
        session.prepare(narrow)
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        assert _load(session, ROW) == {("a",): ("a", 1)}

    def test_a_dropped_table_is_noticed_and_made_again_by_a_reset(
        self, database: Database, session: SqlSession
    ) -> None:
        session.prepare(ROW)
        _run(session, "DROP TABLE things")
        with pytest.raises(SchemaError, match=r"dropped.*holdfast reset things"):
            session.prepare(ROW)
        upkeep.reset(database, ROW, BY_ME)
        session.prepare(ROW)
        _write(session, ROW, "a", 1)

    def test_a_table_of_others_is_left_alone(self, session: SqlSession) -> None:
        _run(session, "CREATE TABLE things (mine integer)")
        _run(session, "INSERT INTO things VALUES (7)")
        with pytest.raises(SchemaError, match="not holdfast's"):
            session.prepare(ROW)
        assert _count(session, "things") == 1

    def test_a_table_of_another_projection_is_left_alone(self, session: SqlSession) -> None:
        session.prepare(ROW)
        other = handler_definition({"things": DDL}, name="other")
        with pytest.raises(SchemaError, match="belongs to projection 'things'"):
            session.prepare(other)

    def test_a_reset_empties_and_begins_again(
        self, database: Database, session: SqlSession
    ) -> None:
        opened = session.take_over(session.open_checkpoint("things", "journal"))
        session.prepare(ROW)
        _write(session, ROW, "a", 1)
        assert upkeep.reset(database, ROW, BY_ME) == ["things"]
        assert _load(session, ROW) == {}
        checkpoint = session.open_checkpoint("things", "journal")
        assert (checkpoint.position, checkpoint.events_processed) == (0, 0)
        assert checkpoint.epoch > opened.epoch

    def test_a_reset_before_the_first_run_changes_nothing(self, database: Database) -> None:
        assert upkeep.reset(database, ROW, BY_ME) == []

    def test_several_statements_make_a_table(self, session: SqlSession) -> None:
        both = handler_definition(
            {
                "one": f"{DDL.replace('things', 'one')}; CREATE INDEX one_n ON one (n);\n",
                "two": "-- 100 %: a comment; with a semicolon\nCREATE TABLE two (id integer)",
            }
        )
        session.prepare(both)
        session.prepare(both)
        assert (_count(session, "one"), _count(session, "two")) == (0, 0)

    def test_a_declared_row_type_is_a_table_to_insert_into(self, session: SqlSession) -> None:
        session.prepare(handler_definition({"things": Row}))
        _run(session, "INSERT INTO things (id, n) VALUES ('a', 1)")
        assert _count(session, "things") == 1

    @pytest.mark.parametrize("ddl", ["CREATE TABLE others (id integer)", "CREATE TABEL things ()"])
    def test_ddl_that_makes_no_such_table_leaves_nothing(
        self, session: SqlSession, ddl: str
    ) -> None:
        with pytest.raises(Exception, match=r"things|TABEL|others"):
            session.prepare(
                handler_definition({"first": "CREATE TABLE first (n int)", "things": ddl})
            )
        for name in ("first", "others", "things"):
            params = {"name": name, "quoted": quote(name)}
            assert session.connection.run("table_exists", params) == []


def _table(definition: Definition) -> TableSpec:
    assert isinstance(definition.kind, Fold)
    return definition.kind.table


def _write(session: SqlSession, definition: Definition, *values: Any) -> None:
    table = _table(definition)
    row = table.row_type(**dict(zip((c.name for c in table.columns), values, strict=True)))
    with session.transaction() as work:
        work.write_rows(table, RowChanges(table.checked([row]), [1]))


def _load(session: SqlSession, definition: Definition) -> dict[Any, tuple[Any, ...]]:
    found = session.load_rows(_table(definition), [("a",), ("b",)])
    return {key: values for key, (values, _) in found.items()}


def _run(session: SqlSession, sql: str) -> None:
    with session.connection.transaction():
        session.connection.script(sql)


def _count(session: SqlSession, table: str) -> int:
    with session.transaction() as work, work.handling() as tx:
        return int(tx.fetch(f"SELECT count(*) FROM {quote(table)}")[0][0])
