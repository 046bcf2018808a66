"""Blocking functions, for those who await them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function on a thread of the event loop's, in the caller's context."""
    # Here, because it takes longer to load than all the rest: whoever awaits has it already.
    from asyncio import to_thread

    return await to_thread(function, *args, **kwargs)
