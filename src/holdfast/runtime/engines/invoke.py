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
    """Calls functions; coroutines run on an event loop of the runner's own."""

    def __init__(self) -> None:
        self._loop: Runner | None = None

    def call(self, function: Function, *args: Any) -> Any:
        result = function(*args)
        return None if result is None else self.settle(result)

    def settle(self, result: Any) -> Any:
        """What a function has returned, or what comes of it if that is to be awaited."""
        if isinstance(result, CoroutineType):
            return self._run(result)
        return self._run(_awaited(result)) if isawaitable(result) else result

    def call_within(
        self, seconds: float, interrupt: Callable[[], None], function: Function, *args: Any
    ) -> Any:
        """Calls a function that must be done in time, else raises TimeoutError.

        `interrupt` is called then, from another thread, and a coroutine is cancelled. Nothing can
        stop other code: the error is raised when it comes back.
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
            # Here, as below: it takes long to load, and most have no use for it.
            from asyncio import Runner

            self._loop = Runner()
        # The context of now, not of the loop's first run: it says which transaction this is.
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
