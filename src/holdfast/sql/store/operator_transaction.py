"""Operators' changes, tried again for a time if they conflict with workers and appends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from holdfast.errors import StoreConflict, StoreUnavailable
from holdfast.sql.database import Connection, Database

CHANGE_SECONDS = 10.0
"""Timeout of an operator's change."""


def operator_transactions(database: Database) -> Iterator[OperatorTransaction]:
    """Yields a transaction again and again, until one is committed:

        for change in operator_transactions(database):
            with change as connection:
                ...

    Raises StoreUnavailable when that takes too long.
    """
    until = time.monotonic() + CHANGE_SECONDS
    while True:
        change = OperatorTransaction(database, until)
        yield change
        if change.is_over:
            return


class OperatorTransaction(AbstractContextManager[Connection]):
    """One attempt. A conflict ends it, and is an error only after the timeout."""

    def __init__(self, database: Database, until: float) -> None:
        self._until = until
        self._transaction = database.changing(max(0.1, until - time.monotonic()))
        self.is_over = False

    def __enter__(self) -> Connection:
        return self._transaction.__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            self._transaction.__exit__(exc_type, exc, traceback)
        except StoreConflict as error:
            exc = error
        if not isinstance(exc, StoreConflict):
            self.is_over = True
            return False
        if time.monotonic() >= self._until:
            raise StoreUnavailable(
                f"nothing was changed, because others have been in the way for more than "
                f"{CHANGE_SECONDS:g} s: a worker is inside a transaction, and its handler is slow, "
                "or hangs, or an append is inside a long one. Try again, or take the projection "
                "from the worker with holdfast depose"
            ) from exc
        return True
