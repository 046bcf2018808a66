"""Blocking functions, to be awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function on a thread of the event loop, in the caller's context."""
    # asyncio takes longer to import than holdfast; a program that awaits has imported it.
    from asyncio import to_thread

    return await to_thread(function, *args, **kwargs)
