"""Calls users' functions, def or async def, within a time limit if there is one."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import Runner

Function = Callable[..., Any]


class Invoker:
    """Calls functions of one runner; coroutines run on an event loop of the runner's own."""

    def __init__(self) -> None:
        self._loop: Runner | None = None

    def call(self, function: Function, *args: Any) -> Any:
        result = function(*args)
        return None if result is None else self.resolve(result)

    def resolve(self, result: Any) -> Any:
        """The result of a function, awaited if it has to be."""
        if isinstance(result, CoroutineType):
            return self._run(result)
        return self._run(_awaited(result)) if isawaitable(result) else result

    def call_within(
        self, seconds: float, interrupt: Callable[[], None], function: Function, *args: Any
    ) -> Any:
        """Calls a function, or raises TimeoutError if it takes longer than the limit.

        At the limit `interrupt` is called from another thread, and a coroutine is cancelled. Other
        code can't be stopped: the error is raised when it returns.
        """
        late = TimeoutError(f"the handler took longer than its limit of {seconds:g} s")
        until = time.monotonic() + seconds
        timer = threading.Timer(seconds, interrupt)
        timer.daemon = True
        timer.start()
        try:
            result = function(*args)
            if isawaitable(result):
                result = self._run(_within(result, until - time.monotonic(), late))
        except BaseException as error:
            if error is late or time.monotonic() < until:
                raise
            raise late from error
        finally:
            timer.cancel()
            timer.join()
        if time.monotonic() >= until:
            raise late
        return result

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            # Imported here, as below: it takes long to load, and most projections don't need it.
            from asyncio import Runner

            self._loop = Runner()
        # The present context, not that of the loop's first run: it names the transaction.
        return self._loop.run(coroutine, context=copy_context())


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


async def _within(coroutine: Awaitable[Any], seconds: float, late: TimeoutError) -> Any:
    from asyncio import timeout

    limit = timeout(max(0.0, seconds))
    try:
        async with limit:
            return await coroutine
    except BaseException as error:
        if limit.expired():
            raise late from error
        raise
