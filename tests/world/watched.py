"""A worker's sessions, at whose commits the process may end, and a trace of what it does."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import App
from holdfast.runtime.store.clock import Clock
from holdfast.sql.database import Row
from holdfast.sql.store.session import SqlSession
from tests.world.wanted import Step


class Watch:
    """At which transaction the process ends, and the file that gets a line for what is done."""

    def __init__(self, step: Step | None, trace: str | None) -> None:
        self.step, self._trace = step, None if trace is None else Path(trace)
        self._times = 0
        self._counting = threading.Lock()

    def open(self, url: str, *, clock: Clock | None = None) -> App:
        if self.step is None and self._trace is None:
            return App(url, clock=clock)
        return WatchedApp(url, self)

    def is_next(self) -> bool:
        """Counts a transaction with the statement; whether it is the one."""
        assert self.step is not None
        with self._counting:
            self._times += 1
            return self._times == self.step.number

    def trace(self, what: str, stream: str, position: int, at: int | None = None) -> None:
        """One write for a line, by a clock that all processes share."""
        if self._trace is not None:
            line = f"{what} {at or time.monotonic_ns()} {os.getpid()} {threading.get_ident()}"
            with self._trace.open("ab", buffering=0) as file:
                file.write(f"{line} {stream} {position}\n".encode())


class WatchedApp(App):
    def __init__(self, url: str, watch: Watch) -> None:
        super().__init__(url)
        self.watch = watch

    def _open_session(self) -> SqlSession:
        self._prepare()
        return WatchedSession(self)


class WatchedSession(SqlSession):
    """A real session, at whose commits the process may end."""

    def __init__(self, app: WatchedApp) -> None:
        super().__init__(app._database)
        watch, step = app.watch, app.watch.step
        begin, run = self.connection.transaction, self.connection.run
        has_run, began = False, 0

        def watched(name: str, params: Mapping[str, Any] | None = None) -> list[Row]:
            nonlocal has_run
            has_run = has_run or (step is not None and name == step.statement)
            rows = run(name, params)
            if name == "claim_lanes":
                for (lane,) in rows:
                    watch.trace("claim", lane, 0, began)
            return rows

        @contextmanager
        def transaction() -> Iterator[None]:
            nonlocal has_run, began
            has_run, began = False, time.monotonic_ns()
            with begin():
                yield
                ends = has_run and watch.is_next()
                if ends and step is not None and step.when == "before":
                    os._exit(1)
            if ends:
                os._exit(1)

        self.connection.transaction = transaction  # type: ignore[method-assign]
        self.connection.run = watched  # type: ignore[method-assign]
