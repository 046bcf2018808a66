"""Projections that run in threads of the user's own program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from holdfast.runtime.run.supervisor import Supervisor
from holdfast.sql.forks import at_fork
from holdfast.threads import in_thread

STOP_SECONDS = 30.0
"""Maximum time that a stop waits for handlers. A transaction that lasts longer is rolled back."""


class Running:
    """The projections of an app, running in threads between enter and exit."""

    def __init__(self, supervise: Callable[[], Supervisor]) -> None:
        self._supervise = supervise
        self._supervisor: Supervisor | None = None
        at_fork(self, Running._forked)

    @property
    def faulted(self) -> dict[str, str]:
        """The projections that have stopped, each with its error."""
        if self._supervisor is None:
            return {}
        found = {}
        for runner in self._supervisor.faulted:
            assert runner.fault is not None
            found[runner.definition.name] = (
                f"{runner.fault.error_type}: {runner.fault.error_message}"
            )
        return found

    def __enter__(self) -> Self:
        self._supervisor = self._supervise()
        self._supervisor.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._supervisor is not None:  # None in a child that was forked inside the block.
            self._supervisor.stop()
            self._supervisor.join(STOP_SECONDS)

    async def __aenter__(self) -> Self:
        return await in_thread(self.__enter__)

    async def __aexit__(self, *exc: object) -> None:
        await in_thread(self.__exit__, *exc)

    def _forked(self) -> None:
        """In a forked child no projection runs."""
        self._supervisor = None
