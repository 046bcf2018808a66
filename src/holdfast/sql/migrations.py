"""Numbered migrations, a folder for each database. They run once, in order, in one transaction."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from holdfast.errors import ConfigError, HoldfastError, SchemaError
from holdfast.sql.database import Connection, Database, quote


def migrate(database: Database) -> int:
    """Brings the database to this code's schema; returns how many migrations ran.

    Safe when many processes start at once: one migrates, and the others find it done.
    """
    scripts = _scripts(database.dialect)
    with database.reading() as connection:
        if _check(_version(connection), scripts) == len(scripts):
            return 0
    with database.migrating() as connection:
        version = _check(_version(connection), scripts)
        try:
            for script in scripts[version:]:
                connection.script(script)
            record_version(connection, len(scripts))
        except HoldfastError:
            raise
        except Exception as error:
            raise SchemaError(f"can't create or update holdfast's tables: {error}") from error
        return len(scripts) - version


def check_migrated(database: Database) -> None:
    """Raises SchemaError unless the database has exactly this code's schema."""
    scripts = _scripts(database.dialect)
    with database.reading() as connection:
        if _check(_version(connection), scripts) < len(scripts):
            raise SchemaError(
                "the database has no holdfast tables, or those of an older version; "
                "run holdfast migrate, or call app.migrate() before anything else"
            )


def has_tables(database: Database) -> bool:
    """Whether the database has holdfast's tables. Makes nothing, not even a file.

    Raises SchemaError if they are of another version.
    """
    if not database.exists:
        return False
    with database.reading() as connection:
        if not _version(connection):
            return False
    check_migrated(database)
    return True


def record_version(connection: Connection, version: int) -> None:
    """Records how many migrations have run."""
    connection.script("CREATE TABLE IF NOT EXISTS holdfast_schema (version integer NOT NULL)")
    connection.script("DELETE FROM holdfast_schema")
    connection.script(f"INSERT INTO holdfast_schema VALUES ({version:d})")


def _version(connection: Connection) -> int:
    """The number of the last migration that ran; 0 if none has."""
    # In this order: another process may be creating both tables.
    has_events = table_exists(connection, "holdfast_event")
    if not table_exists(connection, "holdfast_schema"):
        if has_events:
            raise ConfigError("the database has a table holdfast_event that is not holdfast's")
        return 0
    return int(connection.run("schema_version")[0][0])


def table_exists(connection: Connection, name: str) -> bool:
    """Whether the database has a table of this name."""
    return bool(connection.run("table_exists", {"name": name, "quoted": quote(name)}))


def _check(version: int, scripts: tuple[str, ...]) -> int:
    if version > len(scripts):
        raise SchemaError(
            f"the database has holdfast schema {version}, this code knows up to {len(scripts)}; "
            "install the newer holdfast that wrote it"
        )
    return version


@cache
def _scripts(dialect: str) -> tuple[str, ...]:
    folder = files(f"{__package__}.{dialect}") / "migrations"
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(f.read_text(encoding="utf-8") for f in found)
