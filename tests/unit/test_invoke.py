"""Invoker: users' functions, def and async def, with and without a limit of time."""

import asyncio
import contextvars
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from holdfast.runtime.engines.invoke import Invoker

LONG_SECONDS = 3_600.0
"""A limit that no test reaches."""

WAIT_SECONDS = 30.0


@pytest.fixture
def invoker() -> Iterator[Invoker]:
    invoker = Invoker()
    yield invoker
    invoker.close()


def never() -> None:
    pytest.fail("interrupted in time")


def add(a: int, b: int) -> int:
    return a + b


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


class Refused(Exception):
    pass


def refuse() -> None:
    raise Refused


async def refuse_later() -> None:
    await asyncio.sleep(0)
    raise Refused


@pytest.mark.parametrize("function", [add, add_later])
def test_a_result_comes_back(invoker: Invoker, function: object) -> None:
    assert invoker.call(function, 1, 2) == 3  # type: ignore[arg-type]
    assert invoker.call_within(LONG_SECONDS, never, function, 1, 2) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [refuse, refuse_later])
def test_an_error_stays_what_it_is(invoker: Invoker, function: object) -> None:
    with pytest.raises(Refused):
        invoker.call(function)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        invoker.call_within(LONG_SECONDS, never, function)  # type: ignore[arg-type]


def test_a_time_out_of_ones_own_is_not_ours(invoker: Invoker) -> None:
    async def give_up() -> None:
        raise TimeoutError("the other system's")

    with pytest.raises(TimeoutError, match="the other system's"):
        invoker.call_within(LONG_SECONDS, never, give_up)


def test_coroutines_run_on_one_loop(invoker: Invoker) -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    first = invoker.call(loop)
    assert invoker.call(loop) is first
    assert invoker.call_within(LONG_SECONDS, never, loop) is first


def test_a_coroutine_sees_the_context_of_its_call(invoker: Invoker) -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def read() -> int:
        return variable.get()

    for value in (1, 2):
        token = variable.set(value)
        assert invoker.call(read) == value
        assert invoker.call_within(LONG_SECONDS, never, read) == value
        variable.reset(token)


def test_close_without_a_coroutine() -> None:
    Invoker().close()


# Limits


def test_what_runs_too_long_is_interrupted_from_another_thread(invoker: Invoker) -> None:
    interrupted = threading.Event()
    threads: list[threading.Thread] = []

    def interrupt() -> None:
        threads.append(threading.current_thread())
        interrupted.set()

    def run() -> None:
        assert interrupted.wait(WAIT_SECONDS)
        raise Refused  # As a driver does whose statement was cancelled.

    with pytest.raises(TimeoutError, match=r"longer than its limit of 0\.01 s") as found:
        invoker.call_within(0.01, interrupt, run)
    assert isinstance(found.value.__cause__, Refused)
    assert threads != [threading.current_thread()]
    assert len(threads) == 1
    assert not threads[0].is_alive()


def test_a_result_that_is_late_is_none(invoker: Invoker) -> None:
    interrupted = threading.Event()

    def run() -> str:
        assert interrupted.wait(WAIT_SECONDS)
        return "late"

    with pytest.raises(TimeoutError, match="longer than its limit"):
        invoker.call_within(0.01, interrupted.set, run)


def test_a_coroutine_is_cancelled(invoker: Invoker) -> None:
    ended: list[str] = []

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with pytest.raises(TimeoutError, match="longer than its limit"):
        invoker.call_within(0.01, lambda: None, run)
    assert ended == ["cancelled"]
    assert invoker.call(add_later, 1, 2) == 3


def test_a_coroutine_that_ignores_its_end_is_late(invoker: Invoker) -> None:
    async def run() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    with pytest.raises(TimeoutError, match="longer than its limit"):
        invoker.call_within(0.01, lambda: None, run)


def test_a_coroutine_that_fails_at_its_end_is_late(invoker: Invoker) -> None:
    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Refused

    with pytest.raises(TimeoutError, match="longer than its limit") as found:
        invoker.call_within(0.01, lambda: None, run)
    assert isinstance(found.value.__cause__, Refused)


def test_a_coroutine_that_blocks_is_interrupted(invoker: Invoker) -> None:
    interrupted = threading.Event()

    async def run() -> None:
        assert interrupted.wait(WAIT_SECONDS)  # As SQL does, which knows no await.
        raise Refused

    with pytest.raises(TimeoutError, match="longer than its limit") as found:
        invoker.call_within(0.01, interrupted.set, run)
    assert isinstance(found.value.__cause__, Refused)


def test_nothing_is_left_behind(invoker: Invoker) -> None:
    before = threading.active_count()
    for _ in range(3):
        invoker.call_within(LONG_SECONDS, never, add, 1, 2)
        with pytest.raises(Refused):
            invoker.call_within(LONG_SECONDS, never, refuse)
    assert threading.active_count() == before


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_anything_that_can_be_awaited_is_awaited(invoker: Invoker, seconds: float | None) -> None:
    class Later:
        def __await__(self) -> Generator[Any, None, str]:
            yield from asyncio.sleep(0).__await__()
            return "done"

    if seconds is None:
        assert invoker.call(Later) == "done"
    else:
        assert invoker.call_within(seconds, never, Later) == "done"
