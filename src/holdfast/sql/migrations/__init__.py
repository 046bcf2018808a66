"""Numbered migrations, a folder for each database. They run once, in order, in one transaction."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from holdfast.core.errors import HoldfastError, SchemaError
from holdfast.sql.database import Database


def migrate(database: Database) -> int:
    """Brings the database to this code's schema; returns how many migrations ran.

    Safe when many processes start at once: they take turns, and the later ones find it done.
    """
    scripts = _scripts(database.dialect)
    with database.reading() as connection:
        if _check(database.schema_version(connection), scripts) == len(scripts):
            return 0
    with database.migrating() as connection:
        version = _check(database.schema_version(connection), scripts)
        try:
            for script in scripts[version:]:
                connection.script(script)
            database.record_schema_version(connection, len(scripts))
        except HoldfastError:
            raise
        except Exception as error:
            raise SchemaError(f"can't create or update holdfast's tables: {error}") from error
        return len(scripts) - version


def check_migrated(database: Database) -> None:
    """Raises SchemaError unless the database has exactly this code's schema."""
    scripts = _scripts(database.dialect)
    with database.reading() as connection:
        if _check(database.schema_version(connection), scripts) < len(scripts):
            raise SchemaError(
                "the database has no holdfast tables, or those of an older version; "
                "run holdfast migrate, or call app.migrate() before anything else"
            )


def _check(version: int, scripts: tuple[str, ...]) -> int:
    if version > len(scripts):
        raise SchemaError(
            f"the database has holdfast schema {version}, this code knows up to {len(scripts)}; "
            "install the newer holdfast that wrote it"
        )
    return version


@cache
def _scripts(dialect: str) -> tuple[str, ...]:
    folder = files(__package__) / dialect
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(f.read_text(encoding="utf-8") for f in found)
