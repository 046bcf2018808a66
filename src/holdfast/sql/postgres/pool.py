"""A pool of connections for appends and quick reads."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.errors import StoreUnavailable

DESCRIBE_SECONDS = 1.0
"""Interval at which a pool asks what its connections wait for."""

Raw = psycopg.Connection[Any]


class Pool:
    """At most `max_connections` are in use at a time; idle ones wait on a stack.

    The caller's thread connects: it gets the error of a server that is away, and the next caller
    is served when the server is back.
    """

    def __init__(
        self,
        connect: Callable[[], Raw],
        *,
        max_connections: int,
        wait_seconds: float,
        describe: Callable[[Sequence[int]], str] = lambda _: "",
    ) -> None:
        """`describe`: what the sessions of these processes of the server wait for."""
        self._connect, self._describe = connect, describe
        self._max_connections, self._wait_seconds = max_connections, wait_seconds
        self._free = threading.Semaphore(max_connections)
        self._idle: list[Raw] = []
        self._used: set[Raw] = set()
        self._describing = threading.Lock()
        self._described = -DESCRIBE_SECONDS, ""
        self._is_closed = False

    @contextmanager
    def connection(self) -> Iterator[Raw]:
        """A connection outside of a transaction, for the length of the block."""
        if not self._free.acquire(timeout=self._wait_seconds):
            raise self._exhausted()
        try:
            raw = self._pop() or self._connect()
            self._used.add(raw)
            try:
                yield raw
            finally:
                self._used.discard(raw)
                self._take_back(raw)
        finally:
            self._free.release()

    def close(self) -> None:
        """Closes what is idle; what is in use is closed when it comes back."""
        self._is_closed = True
        while self._idle:
            _close(self._idle.pop())

    def _exhausted(self) -> StoreUnavailable:
        what = self._waits()
        return StoreUnavailable(
            f"all {self._max_connections} connections of the app have been in use for "
            f"{self._wait_seconds:g} s"
            + (f": {what}" if what else "; append and read from fewer threads at a time")
        )

    def _waits(self) -> str:
        """Many threads ask at once, and one of them asks the server."""
        with self._describing:
            at, what = self._described
            if time.monotonic() - at >= DESCRIBE_SECONDS:
                what = self._describe([raw.info.backend_pid for raw in self._used.copy()])
                self._described = time.monotonic(), what
            return what

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
