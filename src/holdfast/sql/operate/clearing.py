"""What a reset clears besides the projection's own tables, and what it leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from types import CodeType, FunctionType
from typing import Any

from holdfast.errors import HoldfastError, TransactionEnded
from holdfast.model.definition import Definition, Fold, Publish, SqlRanges
from holdfast.model.projection import Projection, SqlProjection, TableProjection
from holdfast.runtime.engines.invoke import Function, Invoker
from holdfast.runtime.engines.scoped_tx import ScopedTx
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.transaction import HandlerTx
from holdfast.sql.database import Connection, Database, handled_database

_BASES = (Projection, SqlProjection, TableProjection)
_WRITES = re.compile(
    r"""\b(?:insert(?:\s+or\s+\w+)?\s+into|replace\s+into|merge\s+into|delete\s+from)\s+([\w."]+)"""
    r"""|\bupdate\s+([\w."]+)(?:\s+as)?(?:\s+\w+)?\s+set\b""",
    re.IGNORECASE,
)


def has_clear(definition: Definition) -> bool:
    """Whether the class has a `clear` of its own."""
    clear: Any = type(definition.kind.projection).clear
    return clear not in (Projection.clear, TableProjection.clear)


def call_clear(database: Database, connection: Connection, definition: Definition) -> None:
    """Calls the class's `clear`, if it has one, in the open transaction."""
    if not has_clear(definition):
        return
    where = f"projection {definition.name!r}: its clear() has"
    name = {"projection": definition.name}
    connection.run("need_reset", name | {"needs_reset": True})  # Should it end the transaction.
    token = handled_database.set(database)
    try:
        with closing(Invoker()) as invoker, connection.handling(savepoint=False) as handler_tx:
            tx = ScopedTx(_Open(handler_tx))
            invoker.call(definition.kind.projection.clear, tx)
            tx.end()
    except TransactionEnded as error:
        raise HoldfastError(
            f"{where} ended the transaction itself, so that only a part of the reset may be in; "
            "leave COMMIT and ROLLBACK out of it, and reset again: before, it does not run"
        ) from error
    except Exception as error:
        if (unavailable := database.unavailable(error)) is not None:
            raise unavailable from error
        text = f"{type(error).__name__}: {text_of(error)}"
        raise HoldfastError(f"{where} failed, so nothing was changed: {text}") from error
    finally:
        handled_database.reset(token)
    connection.run("need_reset", name | {"needs_reset": False})


def tables_left(definition: Definition) -> list[str]:
    """The tables that a reset leaves though the projection writes them, as far as its SQL shows.

    Tables that others own, such as those of an application's own migrations.
    """
    if isinstance(definition.kind, Fold | Publish) or has_clear(definition):
        return []
    if isinstance(definition.kind, SqlRanges):
        texts: Iterable[str] = definition.kind.spec.statements
    else:
        texts = _texts(type(definition.kind.projection))
    written = {
        (into or updated).replace('"', "")
        for text in texts
        for into, updated in _WRITES.findall(text)
    }
    return sorted(written - definition.tables.keys())


class _Open:
    """A transaction that is open already."""

    def __init__(self, tx: HandlerTx) -> None:
        self.tx: HandlerTx | None = tx

    def begin(self) -> HandlerTx:
        assert self.tx is not None
        return self.tx

    @property
    def callbacks(self) -> list[Function]:
        raise HoldfastError("clear() has no after_commit; do it after the reset")


def _texts(cls: type) -> Iterator[str]:
    """The texts in a class and its functions, and those that the functions name."""
    for base in cls.__mro__:
        if base in _BASES or base is object:
            continue
        for value in vars(base).values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, FunctionType):
                yield from _texts_of(value.__code__, value.__globals__)


def _texts_of(code: CodeType, names: dict[str, Any]) -> Iterator[str]:
    yield from (text for name in code.co_names if isinstance(text := names.get(name), str))
    for value in code.co_consts:
        if isinstance(value, str):
            yield value
        elif isinstance(value, CodeType):
            yield from _texts_of(value, names)
