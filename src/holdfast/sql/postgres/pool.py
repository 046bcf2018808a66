"""A pool of connections for appends and quick reads."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.errors import StoreUnavailable

Raw = psycopg.Connection[Any]


class Pool:
    """At most `max_connections` are in use at a time; idle ones wait on a stack.

    The caller's thread connects: it gets the error of a server that is away, and the next caller
    is served when the server is back.
    """

    def __init__(
        self, connect: Callable[[], Raw], *, max_connections: int, wait_seconds: float
    ) -> None:
        self._connect = connect
        self._max_connections, self._wait_seconds = max_connections, wait_seconds
        self._free = threading.Semaphore(max_connections)
        self._idle: list[Raw] = []
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[Raw]:
        """A connection outside of a transaction, for the length of the block."""
        if not self._free.acquire(timeout=self._wait_seconds):
            raise StoreUnavailable(
                f"all {self._max_connections} connections of the app have been in use for "
                f"{self._wait_seconds:g} s; append and read from fewer threads at a time"
            )
        try:
            raw = self._pop() or self._connect()
            try:
                yield raw
            finally:
                self._take_back(raw)
        finally:
            self._free.release()

    def close(self) -> None:
        """Closes what is idle; what is in use is closed when it comes back."""
        self._is_closed = True
        while self._idle:
            _close(self._idle.pop())

    def _pop(self) -> Raw | None:
        while True:
            try:
                raw = self._idle.pop()
            except IndexError:
                return None
            if not _has_news(raw):
                return raw
            _close(raw)

    def _take_back(self, raw: Raw) -> None:
        if self._is_closed or raw.info.transaction_status is not TransactionStatus.IDLE:
            _close(raw)
        else:
            self._idle.append(raw)


def _has_news(raw: Raw) -> bool:
    """Whether the server has sent something unasked: nearly always that it ends the connection."""
    if raw.closed:
        return True
    poll = select.poll()  # select.select can't take descriptors above 1023.
    poll.register(raw.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _close(raw: Raw) -> None:
    with suppress(psycopg.Error):
        raw.close()
