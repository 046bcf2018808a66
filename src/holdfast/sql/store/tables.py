"""The tables of projections: created, extended by columns, emptied, or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.errors import SchemaError
from holdfast.model.definition import Definition
from holdfast.model.rows.row_type import POSITION_COLUMN, TableSpec
from holdfast.sql.database import Connection, Database, quote
from holdfast.sql.migrations import table_exists


def prepare_tables(database: Database, connection: Connection, definition: Definition) -> None:
    """Creates missing tables, adds new columns, and raises SchemaError for any other change."""
    with connection.transaction():
        connection.run("lock_tables")
        for name, declared in definition.tables.items():
            _prepare(database, connection, definition.name, name, declared)


def clear_tables(connection: Connection, definition: Definition) -> list[str]:
    """Empties the projection's tables, or drops those whose definition has changed.

    Runs in the caller's transaction; returns the tables' names.
    """
    names = []
    for name, recorded in connection.run("owned_tables", {"projection": definition.name}):
        names.append(name)
        declared = definition.tables.get(name)
        if (
            declared is not None
            and _definition(declared) == recorded
            and table_exists(connection, name)
        ):
            connection.script(f"DELETE FROM {quote(name)}")
        else:
            connection.drop_table(name)
            connection.run("disown_table", {"name": name})
    return names


def _prepare(
    database: Database,
    connection: Connection,
    projection: str,
    name: str,
    declared: str | TableSpec,
) -> None:
    exists, definition = table_exists(connection, name), _definition(declared)
    known = connection.run("find_table", {"name": name})
    if not known and exists:
        raise SchemaError(
            f"projection {projection!r}: a table {name!r} is there already, and is not holdfast's; "
            "rename one of them, or drop the table if nobody needs it"
        )
    if known and known[0][0] != projection:
        raise SchemaError(
            f"projection {projection!r}: table {name!r} belongs to projection {known[0][0]!r}; "
            "give it another name"
        )
    if known and not exists:
        raise SchemaError(
            f"projection {projection!r}: its table {name!r} was dropped; "
            f"run holdfast reset {projection} to build it again from the first event"
        )
    if not known:
        connection.script(
            _create(database, declared) if isinstance(declared, TableSpec) else declared
        )
        if not table_exists(connection, name):
            raise SchemaError(f"projection {projection!r}: its DDL did not create table {name!r}")
    elif known[0][1] == definition:
        return
    elif isinstance(declared, TableSpec):
        recorded = json.loads(known[0][1])
        kept = _widen(database, connection, projection, declared, recorded)
        definition = declared.definition(kept)
    else:
        raise _needs_rebuild(projection, name, "its DDL has changed")
    connection.run("own_table", {"name": name, "projection": projection, "definition": definition})


def _create(database: Database, table: TableSpec) -> str:
    # Defaults are for code that does not know the column, and for handlers' own inserts.
    columns = [
        database.column_ddl(column, with_default=column.name not in table.key)
        for column in table.columns
    ]
    columns.append(f'"{table.guard}" bigint NOT NULL DEFAULT 0')
    columns.append(f"PRIMARY KEY ({', '.join(map(quote, table.key))})")
    return f"CREATE TABLE {quote(table.name)} ({', '.join(columns)}){database.table_options}"


def _widen(
    database: Database,
    connection: Connection,
    projection: str,
    table: TableSpec,
    recorded: Mapping[str, object],
) -> dict[str, str]:
    """Adds new columns; any other difference needs a rebuild.

    Columns that the code does not know stay as they are, if rows can be written without them: a
    later version of it has added them. Returns their kinds.
    """
    old = recorded.get("columns")
    if not isinstance(old, dict):
        raise _needs_rebuild(projection, table.name, "it was declared by DDL before")
    if recorded.get("guard", POSITION_COLUMN) != table.guard:
        raise _needs_rebuild(projection, table.name, "its events came from elsewhere before")
    if recorded["key"] != list(table.key):
        reason = f"its key was {recorded['key']}, now it is {list(table.key)}"
        raise _needs_rebuild(projection, table.name, reason)
    new = {column.name: column for column in table.columns}
    names = {"name": table.name, "quoted": quote(table.name)}
    needed: dict[str, bool] = dict(connection.run("table_columns", names))
    kept: dict[str, str] = {}
    for name, kind in old.items():
        if name not in needed:
            continue  # It was dropped by hand.
        if name not in new:
            if needed[name]:
                reason = f"column {name!r} is no longer declared, and has no default"
                raise _needs_rebuild(projection, table.name, reason)
            kept[name] = kind
        elif new[name].described() != kind:
            reason = f"column {name!r} was {kind}, now it is {new[name].described()}"
            raise _needs_rebuild(projection, table.name, reason)
    for name, column in new.items():
        if name not in old or name not in needed:
            ddl = database.column_ddl(column, with_default=True)
            connection.script(f"ALTER TABLE {quote(table.name)} ADD COLUMN {ddl}")
    return kept


def _needs_rebuild(projection: str, table: str, reason: str) -> SchemaError:
    return SchemaError(
        f"projection {projection!r}, table {table!r}: {reason}, and its rows would be wrong; "
        f"run holdfast reset {projection} to build it again from the first event, "
        "or take the change back"
    )


def _definition(declared: str | TableSpec) -> str:
    if isinstance(declared, TableSpec):
        return declared.definition()
    return json.dumps({"ddl": declared})
