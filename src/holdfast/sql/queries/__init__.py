"""Named SQL: one file a statement, shared by all databases unless a folder overrides it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def query(name: str, dialect: str) -> str:
    """The statement `name` for a database, with parameters written `:name`."""
    folder = files(__package__)
    own = folder / dialect / f"{name}.sql"
    text = (own if own.is_file() else folder / f"{name}.sql").read_text(encoding="utf-8")
    return _COMMENT.sub("", text).strip()


@cache
def numbered(sql: str) -> tuple[str, list[str]]:
    """The same statement with parameters written `?`, and their names in order."""
    return _PARAMETER.sub("?", sql), _PARAMETER.findall(sql)


@cache
def pyformat(sql: str) -> str:
    """The same statement with parameters written `%(name)s`, as psycopg and Django take them."""
    return _PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%"))
