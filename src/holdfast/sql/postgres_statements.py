"""Statements of handlers that the server has prepared, run in one call of the C library.

A handler's statement is mostly the same one as for the event before. The driver prepares it as
well, but takes half as long again to send it and to wait for its answer. See ADR 0026.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.sql.database import Row
from holdfast.sql.postgres_prepared import checked, new_name

WORTH_TIMES = 3
"""So often the driver runs a statement before it is prepared here: most that come once come never
again."""

MAX_PREPARED = 32
"""Statements of one connection that are prepared here. Those that come later are the driver's."""

MAX_TEXTS = 1_000
"""Texts that are remembered, also of statements that are never prepared."""

_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.S)
_HARMLESS = frozenset(("select", "insert", "update", "delete", "merge", "with"))
_FORGETTING = frozenset(("drop", "rollback", "deallocate", "discard"))
_MARK = re.compile(r"(?P<percent>%%)|(?P<next>%s)|%\((?P<name>\w+)\)s|(?P<other>%)")
_LOOK = b"SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'holdfast%'"


class Statements:
    """Handlers' statements on one connection.

    The server forgets what it has prepared when it is told to, as the driver does after a rollback.
    In a transaction, to find out by an error would be too late: whoever has done what may have that
    effect says so, and then the server is asked first.
    """

    def __init__(self, raw: psycopg.Connection[Row]) -> None:
        self._raw, self._pgconn = raw, raw.pgconn
        self._texts: dict[str, _Text] = {}
        self._names: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._is_in_doubt = False
        self.forget_adapters()

    def run(self, sql: str, params: Any) -> PGresult | None:
        """What comes of a statement; None if it is the driver's to run."""
        text = self._text(sql)
        if text is None:
            return None
        text.times += 1
        values = text.values(params) if text.times > WORTH_TIMES else None
        if values is None:
            return None
        with self._raw.lock:  # A handler may have left a thread behind that uses the connection.
            data: Sequence[Any] = self._transformer.dump_sequence(values, text.formats)
            name = self._name(text, self._transformer.types or ())
            if name is None:
                return None
            formats = self._transformer.formats
            return self._checked(self._pgconn.exec_prepared(name, data, formats, Format.TEXT))

    def rows(self, result: PGresult) -> list[Row]:
        """The rows that a statement has returned; raises as the driver does if it returns none."""
        if result.status != ExecStatus.TUPLES_OK:
            raise psycopg.ProgrammingError("the last operation didn't produce records")
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def driver_runs(self, sql: str) -> None:
        """The driver is about to run a statement."""
        if (text := self._text(sql)) is None or not text.is_simple:
            self.doubt()

    def may_wait(self, sql: str) -> bool:
        """Whether the driver can send a statement without waiting for the answer.

        Not where it makes the driver forget what is prepared: it would take the statements that
        it sends until the answer comes for prepared.
        """
        return (text := self._text(sql)) is None or not text.is_forgetting

    def doubt(self) -> None:
        """The server may have been told to forget what it has prepared."""
        self._is_in_doubt = True

    def forget_adapters(self) -> None:
        """Handlers may have changed how the connection adapts values."""
        self._transformer = Transformer(self._raw)

    def _text(self, sql: str) -> _Text | None:
        """What is known of a statement; nothing of those that are put together by the driver."""
        if type(sql) is not str:
            return None
        text = self._texts.get(sql)
        if text is None:
            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            text = self._texts[sql] = _Text(sql)
        return text

    def _name(self, text: _Text, types: tuple[int, ...]) -> bytes | None:
        """The name of a statement that the server has prepared; None if there are too many."""
        if self._is_in_doubt:
            self._look()
        name = self._names.get((text.sql, types))
        if name is None and len(self._names) < MAX_PREPARED:
            name = new_name()
            command = text.numbered.encode(self._raw.info.encoding)
            self._checked(self._pgconn.prepare(name, command, types))
            self._names[text.sql, types] = name
        return name

    def _look(self) -> None:
        """Asks the server what it remembers."""
        if self._names:
            found = self._checked(self._pgconn.exec_(_LOOK))
            there = {found.get_value(row, 0) for row in range(found.ntuples)}
            self._names = {key: name for key, name in self._names.items() if name in there}
        self._is_in_doubt = False

    def _checked(self, result: PGresult) -> PGresult:
        return checked(self._pgconn, result)


class _Text:
    """A statement's text: how often it has come, and how the server takes its parameters.

    `is_simple`: nothing that it does makes the driver, or the server, forget what is prepared;
    `is_forgetting`: it does.
    """

    __slots__ = ("_names", "formats", "is_forgetting", "is_simple", "numbered", "sql", "times")

    def __init__(self, sql: str) -> None:
        self.sql, self.times = sql, 0
        self.numbered, parameters, self._names = _numbered(sql)
        found = _FIRST_WORD.match(sql)
        word = found[1].lower() if found else ""
        self.is_simple = word in _HARMLESS and (parameters > 0 or ";" not in sql)
        self.is_forgetting = word in _FORGETTING
        self.formats = [PyFormat.AUTO] * (parameters if self.is_simple else 0)

    def values(self, params: Any) -> Sequence[Any] | None:
        """The parameters in their order; None if they are for the driver to look at."""
        if not self.formats:
            return None
        if self._names:
            is_fit = type(params) is dict and all(name in params for name in self._names)
            return [params[name] for name in self._names] if is_fit else None
        is_fit = type(params) in (tuple, list) and len(params) == len(self.formats)
        return params if is_fit else None


def _numbered(sql: str) -> tuple[str, int, Sequence[str]]:
    """The statement with parameters written `$1`, how many they are, and their names, if any.

    There are none if they are written in a way that only the driver knows.
    """
    marks = [*_MARK.finditer(sql)]
    kinds = {mark.lastgroup for mark in marks} - {"percent"}
    if kinds not in ({"next"}, {"name"}):
        return sql, 0, ()
    names = [*dict.fromkeys(mark["name"] for mark in marks if mark["name"])]
    numbers = count(1)

    def number(mark: re.Match[str]) -> str:
        if mark["percent"]:
            return "%"
        return f"${names.index(mark['name']) + 1 if names else next(numbers)}"

    numbered = _MARK.sub(number, sql)
    return numbered, len(names) or next(numbers) - 1, names
