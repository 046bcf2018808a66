"""Statements of handlers that the server has prepared, run in one call of the C library.

A handler's statement is mostly the same one as for the event before. The driver prepares it as
well, but takes half as long again to send it and to wait for its answer. See ADR 0026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.errors import StoreUnavailable
from holdfast.sql.database import Row
from holdfast.sql.postgres.parameter_style import numbered
from holdfast.sql.postgres.prepared import checked, new_name

WORTH_TIMES = 3
"""So often the driver runs a statement before it is prepared here: most that come once come never
again."""

MAX_PREPARED = 32
"""Statements of one connection that are prepared here."""

MAX_KNOWN = 500
"""Statements that are remembered, also those that are not prepared."""

MAX_CHARACTERS = 4_096
"""Longer ones are not: whoever makes them makes others."""

_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.S)
_PREPARED = frozenset(("select", "insert", "update", "delete", "merge", "with"))
_FORGETTING = frozenset(("drop", "alter", "rollback", "abort", "deallocate", "discard"))
_LOOK = b"SELECT name FROM pg_catalog.pg_prepared_statements WHERE name LIKE 'holdfast%'"

_Key = tuple[str, tuple[int, ...]]
"""A statement's text, and the types of its parameters."""


class Statements:
    """Handlers' statements on one connection.

    The driver tells the server to forget all that is prepared when objects may have changed: after
    a rollback, DROP or ALTER. In a transaction, to find that out by an error would be too late. So
    whoever does such a thing raises a doubt, and nothing that was prepared before is used again.
    """

    def __init__(self, raw: psycopg.Connection[Row]) -> None:
        self._raw, self._pgconn = raw, raw.pgconn
        self._texts: dict[str, _Text] = {}
        self._uses: dict[_Key, int] = {}
        self._names: dict[_Key, bytes] = {}
        self._is_in_doubt = False

    def run(self, sql: str, params: Any) -> PGresult | None:
        """What comes of a statement; None if it is the driver's to run."""
        text = self._text(sql)
        values = None if text is None else text.values(params)
        if text is None or values is None:
            return None
        # Made anew each time: it goes by settings of the session, which a handler may change.
        transformer = Transformer(self._raw)
        with self._raw.lock:  # A handler may have left a thread behind that uses the connection.
            data: Sequence[Any] = transformer.dump_sequence(values, text.formats)
            name = self._name((sql, transformer.types or ()), text)
            if name is None:
                return None
            formats = transformer.formats
            try:
                return self._checked(self._pgconn.exec_prepared(name, data, formats, Format.TEXT))
            except psycopg.errors.DatatypeMismatch as error:
                # It was prepared for what the column was before: the event is not to blame.
                raise StoreUnavailable(
                    f"a column was altered meanwhile; a new connection sees it: {error}"
                ) from error

    def rows(self, result: PGresult) -> list[Row]:
        """The rows that a statement has returned; raises as the driver does if it returns none."""
        if result.status != ExecStatus.TUPLES_OK:
            status = (result.command_status or b"").decode()
            raise psycopg.ProgrammingError(
                f"the last operation didn't produce records (command status: {status})"
            )
        transformer = Transformer(self._raw)
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def forgets(self, sql: object) -> bool:
        """Whether a statement may make the driver forget what is prepared, and the server too."""
        if not isinstance(sql, str):
            return True
        text = self._text(sql)
        return (_first_word(sql) if text is None else text.word) in _FORGETTING

    def driver_runs(self, sql: object, params: Any) -> None:
        """The driver is about to run a statement, or several, as it does without parameters."""
        if self.forgets(sql) or (not params and isinstance(sql, str) and ";" in sql):
            self.doubt()

    def doubt(self) -> None:
        """What is prepared may be gone, or no longer be right."""
        self._is_in_doubt = True

    def _text(self, sql: str) -> _Text | None:
        """What is known of a statement; nothing of those that are none of ours."""
        if type(sql) is not str or len(sql) > MAX_CHARACTERS:
            return None
        text = self._texts.get(sql)
        if text is None:
            if len(self._texts) >= MAX_KNOWN:
                self._texts.clear()
            text = self._texts[sql] = _text_of(sql)
        return text

    def _name(self, key: _Key, text: _Text) -> bytes | None:
        """The name of a statement that the server has prepared; None if it is not worth while."""
        if self._is_in_doubt:
            self._forget(self._names)
            self._is_in_doubt = False
        name = self._names.get(key)
        if name is None and self._comes_often(key):
            if len(self._names) >= MAX_PREPARED:
                self._forget([next(iter(self._names))])
            name = new_name()
            command = text.numbered.encode(self._raw.info.encoding)
            self._checked(self._pgconn.prepare(name, command, key[1]))
            self._names[key] = name
        return name

    def _comes_often(self, key: _Key) -> bool:
        if len(self._uses) >= MAX_KNOWN:
            self._uses.clear()
        uses = self._uses[key] = self._uses.get(key, 0) + 1
        return uses > WORTH_TIMES

    def _forget(self, keys: Iterable[_Key]) -> None:
        """Has the server forget statements, if it has not."""
        names = {self._names[key] for key in keys}
        if names:
            found = self._checked(self._pgconn.exec_(_LOOK))
            names &= {found.get_value(row, 0) or b"" for row in range(found.ntuples)}
        if names:
            self._checked(self._pgconn.exec_(b"; ".join(b"DEALLOCATE " + n for n in names)))
        for key in [*keys]:
            del self._names[key]
            self._uses.pop(key, None)

    def _checked(self, result: PGresult) -> PGresult:
        return checked(self._pgconn, result)


@dataclass(frozen=True, slots=True)
class _Text:
    """A statement: its first word, and how the server takes its parameters, if it is prepared."""

    word: str
    numbered: str
    formats: Sequence[PyFormat]
    names: Sequence[str]

    def values(self, params: Any) -> Sequence[Any] | None:
        """The parameters in their order; None if they are for the driver to look at."""
        if not self.formats:
            return None
        if self.names:
            is_fit = type(params) is dict and all(name in params for name in self.names)
            return [params[name] for name in self.names] if is_fit else None
        is_fit = type(params) in (tuple, list) and len(params) == len(self.formats)
        return params if is_fit else None


def _text_of(sql: str) -> _Text:
    word = _first_word(sql)
    found = numbered(sql) if word in _PREPARED else None
    if found is None:
        return _Text(word, sql, (), ())
    return _Text(word, found.text, [PyFormat.AUTO] * found.parameters, found.names)


def _first_word(sql: str) -> str:
    found = _FIRST_WORD.match(sql)
    return found[1].lower() if found else ""
