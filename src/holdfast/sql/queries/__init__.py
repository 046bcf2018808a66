"""Named SQL: one file a statement, in a folder for its table.

All databases share it, unless a database has a file of the same name in its own folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files
from itertools import count

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def query(name: str, dialect: str) -> str:
    """The statement `name` for a database, with parameters written `:name`."""
    text = _files(dialect)[name].read_text(encoding="utf-8")
    return _COMMENT.sub("", text).strip()


@cache
def _files(dialect: str) -> Mapping[str, Traversable]:
    """The files of all statements for a database, by name."""
    found: dict[str, Traversable] = {}
    for package in (__package__, f"holdfast.sql.{dialect}.queries"):
        for folder in files(package).iterdir():
            if folder.is_dir():
                statements = [f for f in folder.iterdir() if f.name.endswith(".sql")]
                found |= {f.name.removesuffix(".sql"): f for f in statements}
    return found


@cache
def numbered(sql: str) -> tuple[str, list[str]]:
    """The same statement with parameters written `?`, and their names in order."""
    return _PARAMETER.sub("?", sql), _PARAMETER.findall(sql)


@cache
def dollar(sql: str) -> str:
    """The same statement with parameters written `$1`, each of them once, as libpq takes them."""
    numbers = count(1)
    return _PARAMETER.sub(lambda _: f"${next(numbers)}", sql)


@cache
def pyformat(sql: str) -> str:
    """The same statement with parameters written `%(name)s`, as psycopg and Django take them."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))
