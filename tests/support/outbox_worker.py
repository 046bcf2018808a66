"""What the environment can ask of a worker that delivers from the outbox; see lanes_worker.py."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, cast

from holdfast import App, Policy
from holdfast.runtime.outbox import bundle_size, relay
from holdfast.sql.database import Row
from holdfast.sql.outbox import claims as outbox
from holdfast.sql.store.session import SqlSession

CONCURRENCY = "OUTBOX_CONCURRENCY"
"""Delivers from the outbox, so many lanes at once."""
LEASE_SECONDS = "OUTBOX_LEASE_SECONDS"
BACKFILL_EVENTS = "OUTBOX_BACKFILL_EVENTS"
BUNDLE = "OUTBOX_BUNDLE"
"""How many lanes, at most, have a transaction in common."""
DEFAULT_POLICY = "OUTBOX_DEFAULT_POLICY"
"""The policy of outbox projections, with its waits cut short."""
DIE = "OUTBOX_DIE"
"""At which transaction the process ends, see `Step`."""
TRACE = "OUTBOX_TRACE"
"""A file that gets a line for every claim, and when a handler begins and ends."""
RETRY_SECONDS = 0.02


def concurrency() -> int | None:
    return int(os.environ[CONCURRENCY]) if CONCURRENCY in os.environ else None


def patient() -> Policy:
    """As many attempts as outbox delivery makes by default, but soon after one another."""
    policy = Policy.outbox()
    backoff = replace(policy.backoff, delay_seconds=RETRY_SECONDS, max_delay_seconds=RETRY_SECONDS)
    return replace(policy, backoff=backoff)


def make_short() -> None:
    """Leases, bundles and backfills as small as the environment says."""
    if LEASE_SECONDS in os.environ:
        seconds = float(os.environ[LEASE_SECONDS])
        for module in (relay, outbox):
            module.LEASE_SECONDS = seconds  # type: ignore[attr-defined]
        relay.TEND_SECONDS = seconds / 4
    if BUNDLE in os.environ:
        bundle_size.LARGEST_BUNDLE = int(os.environ[BUNDLE])
    if BACKFILL_EVENTS in os.environ:
        outbox.BACKFILL_EVENTS = int(os.environ[BACKFILL_EVENTS])


@dataclass(frozen=True, slots=True)
class Step:
    """Before or after the commit of the n-th transaction in which a statement was run."""

    when: Literal["before", "after"]
    statement: str
    number: int

    def __str__(self) -> str:
        return f"{self.when} {self.statement} {self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        when, statement, number = text.split()
        return cls(cast(Literal["before", "after"], when), statement, int(number))


def open_watched(url: str) -> App:
    """An app that ends the process, and notes what is claimed, as the environment says."""
    return WatchedApp(url) if DIE in os.environ or TRACE in os.environ else App(url)


class WatchedApp(App):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.step = Step.parse(os.environ[DIE]) if DIE in os.environ else None
        self._times = 0
        self._counting = threading.Lock()

    def is_next(self) -> bool:
        """Counts a transaction with the statement; whether it is the one."""
        assert self.step is not None
        with self._counting:
            self._times += 1
            return self._times == self.step.number

    def _open_session(self) -> SqlSession:
        self._prepare()
        return WatchedSession(self)


class WatchedSession(SqlSession):
    """A real session, at whose commits the process may end."""

    def __init__(self, app: WatchedApp) -> None:
        super().__init__(app._database)
        begin, run, step = self.connection.transaction, self.connection.run, app.step
        has_run, began = False, 0

        def watched(name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
            nonlocal has_run
            has_run = has_run or (step is not None and name == step.statement)
            rows = run(name, params)
            if name == "claim_lanes":
                for (lane,) in rows:
                    trace("claim", lane, 0, began)
            return rows

        @contextmanager
        def transaction() -> Iterator[None]:
            nonlocal has_run, began
            has_run, began = False, time.monotonic_ns()
            with begin():
                yield
                ends = has_run and app.is_next()
                if ends and step is not None and step.when == "before":
                    os._exit(1)
            if ends:
                os._exit(1)

        self.connection.transaction = transaction  # type: ignore[method-assign]
        self.connection.run = watched  # type: ignore[method-assign]


def trace(what: str, stream: str, position: int, at: int | None = None) -> None:
    """One write for a line, by a clock that all processes share."""
    if TRACE in os.environ:
        line = f"{what} {at or time.monotonic_ns()} {os.getpid()} {threading.get_ident()}"
        with Path(os.environ[TRACE]).open("ab", buffering=0) as file:
            file.write(f"{line} {stream} {position}\n".encode())
