"""Statements that a runner sends for every event it follows, in one call of the C library.

The driver's own way takes some forty calls in Python, and lets go of the interpreter three times
while others want it. Beside a batch that is nothing; beside a single event it is most of the work.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
from psycopg.abc import AdaptContext
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from holdfast.sql.database import Row
from holdfast.sql.postgres.array_packing import INT8, TEXT, TIMESTAMPTZ, Packed, microseconds
from holdfast.sql.postgres.parameter_style import numbered, plain

INT4, FLOAT8, UUID_ = 23, 701, 2950

LOOK_MILLISECONDS = 1_000

_numbers = count(1)
_int8, _float8 = struct.Struct(">q").pack, struct.Struct(">d").pack

_PACKERS: Mapping[int, Callable[[Any], bytes]] = {
    INT4: struct.Struct(">i").pack,
    INT8: _int8,
    FLOAT8: _float8,
    TEXT: str.encode,
    UUID_: lambda value: value.bytes if isinstance(value, UUID) else UUID(value).bytes,
    TIMESTAMPTZ: lambda value: _int8(microseconds(value)),
}


class Prepared:
    """A statement that the server has prepared on one connection; the server knows its types.

    It is for statements outside of a transaction: one that the server has been told to forget, as
    the driver does after a rollback, is prepared and run again.
    """

    def __init__(
        self, raw: psycopg.Connection[Row], sql: str, context: AdaptContext | None = None
    ) -> None:
        """`sql` has parameters written `%(name)s`; `context` says how its results are loaded."""
        self._pgconn, self._lock = raw.pgconn, raw.lock
        found = numbered(plain(sql))
        assert found is not None, sql
        self._text, self._names = found.text, found.names
        self._formats = [Format.BINARY] * len(self._names)
        self._loader = Transformer(context or raw)
        with self._lock:
            self._prepare()

    def run(self, params: Mapping[str, Any]) -> Sequence[Row]:
        """What it returns. Values of types that are not packed here have to be `Packed`."""
        data = self._packed(params)
        # The driver's: a handler may have left a thread behind that uses the connection.
        with self._lock:
            try:
                result = self._execute(data)
            except psycopg.errors.InvalidSqlStatementName:
                self._prepare()
                result = self._execute(data)
        return self._loaded(result)

    def send(self, params: Mapping[str, Any]) -> None:
        """Has the server run it; before anything else, `receive` is to follow.

        A thread that a handler has left behind finds the connection busy until then.
        """
        with self._lock:
            self._pgconn.send_query_prepared(
                self._name, self._packed(params), self._formats, Format.BINARY
            )
            self._pgconn.flush()

    def receive(self) -> Sequence[Row] | None:
        """What it has returned; None if it has failed, and the connection is still there."""
        with self._lock:
            result = self._received()
        if result is not None and self._pgconn.status == ConnStatus.BAD:
            raise psycopg.OperationalError(result.get_error_message())
        if result is None or result.status != ExecStatus.TUPLES_OK:
            return None
        return self._loaded(result)

    def _received(self) -> PGresult | None:
        """Waits without the interpreter, which `get_result` would hold."""
        news, last = select.poll(), None
        news.register(self._pgconn.socket, select.POLLIN)
        while True:
            while self._pgconn.is_busy():
                # Looked at in any case after a while: something may be left to send, or to decrypt.
                news.poll(LOOK_MILLISECONDS)
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is None:
                return last
            last = result

    def _packed(self, params: Mapping[str, Any]) -> list[Any]:
        return [*map(_data, map(params.__getitem__, self._names), self._packers)]

    def _loaded(self, result: PGresult) -> Sequence[Row]:
        self._loader.set_pgresult(result)
        return self._loader.load_rows(0, result.ntuples, tuple)

    def _prepare(self) -> None:
        self._name = new_name()
        # Not by the calls that wait, the second of which holds the interpreter while it does: all
        # threads would stand still until a lock on a table is free, also the one that has it.
        self._pgconn.send_prepare(self._name, self._text.encode())
        self._checked(self._received())
        self._pgconn.send_describe_prepared(self._name)
        described = self._checked(self._received())
        types = map(described.param_type, range(len(self._names)))
        self._packers = [_PACKERS.get(type_) for type_ in types]

    def _execute(self, data: list[Any]) -> PGresult:
        found = self._pgconn.exec_prepared(self._name, data, self._formats, Format.BINARY)
        return self._checked(found)

    def _checked(self, result: PGresult | None) -> PGresult:
        return checked(self._pgconn, result)


def new_name() -> bytes:
    """A name that no other prepared statement has."""
    return f"holdfast_{next(_numbers)}".encode()


def checked(pgconn: PGconn, result: PGresult | None) -> PGresult:
    """The result, if it is one; raises what the driver would."""
    if result is None:
        raise psycopg.OperationalError("the connection is gone")
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return result
    if pgconn.status == ConnStatus.BAD:
        raise psycopg.OperationalError(result.get_error_message())
    raise psycopg.errors.error_from_result(result)


def are_packed(values: Mapping[str, Any]) -> bool:
    """Whether no array among them is left to the driver, as some kinds of values are."""
    return not any(isinstance(value, list) for value in values.values())


def _data(value: Any, pack: Callable[[Any], bytes] | None) -> bytes | None:
    if value is None:
        return None
    if pack is not None:
        return pack(value)
    assert isinstance(value, Packed), f"{type(value).__name__} is the driver's to pack"
    return value.data
