"""FairLock: one at a time, in the order of asking, and never waiting for oneself."""

import asyncio
import contextvars
import signal
import threading
from collections.abc import Iterator

import pytest

from holdfast import HoldfastError
from holdfast.sql.sqlite.fair_lock import FairLock
from tests.support.postgres import wait_until

WAIT_SECONDS = 30.0


def queue(lock: FairLock, thread: threading.Thread) -> threading.Thread:
    """Starts a thread and returns when it stands in the queue."""
    before = len(lock._waiting)
    thread.start()
    wait_until(lambda: len(lock._waiting) == before + 1, WAIT_SECONDS, "the thread to queue")
    return thread


def test_one_at_a_time() -> None:
    lock = FairLock()
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(200):
            with lock.take():
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert (inside, most) == (0, 1)


def test_first_come_first_served() -> None:
    lock = FairLock()
    served: list[int] = []

    def take(number: int) -> None:
        with lock.take():
            served.append(number)

    with lock.take():
        threads = [
            queue(lock, threading.Thread(target=take, args=(number,))) for number in range(6)
        ]
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert served == list(range(6))


def test_a_thread_that_comes_back_stands_at_the_end() -> None:
    lock = FairLock()
    served: list[str] = []

    def take() -> None:
        with lock.take():
            served.append("the other")

    with lock.take():
        thread = queue(lock, threading.Thread(target=take))
        served.append("first")
    with lock.take():  # At once, long before the other thread has woken up.
        served.append("again")
    thread.join(WAIT_SECONDS)
    assert served == ["first", "the other", "again"]


def test_waiting_for_oneself_is_an_error() -> None:
    lock = FairLock()
    found = []
    with lock.take():
        with pytest.raises(HoldfastError, match="connection=tx"), lock.take():
            raise NotImplementedError
        found.append(lock.is_mine)
    found.append(lock.is_mine)
    with lock.take():
        found.append(lock.is_mine)
    assert found == [True, False, True]


def test_waiting_for_oneself_through_asyncio_is_an_error() -> None:
    lock = FairLock()

    def take() -> None:
        with lock.take():
            raise NotImplementedError

    async def in_a_thread() -> None:
        assert lock.is_mine
        await asyncio.to_thread(take)

    with lock.take(), pytest.raises(HoldfastError, match="connection=tx"):
        asyncio.run(in_a_thread())


def test_a_context_that_outlives_the_turn_has_it_no_longer() -> None:
    lock = FairLock()

    def take() -> bool:
        with lock.take():
            return lock.is_mine

    with lock.take():
        context = contextvars.copy_context()
        assert context.run(lambda: lock.is_mine)
    assert not context.run(lambda: lock.is_mine)
    assert context.run(take)


def test_another_thread_does_not_have_it() -> None:
    lock = FairLock()
    found: list[bool] = []
    with lock.take():
        thread = threading.Thread(target=lambda: found.append(lock.is_mine))
        thread.start()
        thread.join(WAIT_SECONDS)
    assert found == [False]


def test_two_are_independent() -> None:
    one, other = FairLock(), FairLock()
    with one.take(), other.take():
        assert (one.is_mine, other.is_mine) == (True, True)
    assert (one.is_mine, other.is_mine) == (False, False)


def test_an_error_passes_the_turn_on() -> None:
    lock = FairLock()

    def fail() -> None:
        with lock.take():
            raise KeyError("inside")

    with pytest.raises(KeyError):
        fail()
    with lock.take():
        assert lock.is_mine


class Interrupted(BaseException):
    """As Ctrl-C, raised by a signal."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_waiting_leaves_the_queue() -> None:
    lock = FairLock()
    let_go, held = threading.Event(), threading.Event()
    served: list[str] = []
    main = threading.main_thread().ident
    assert main is not None

    def hold() -> None:
        with lock.take():
            held.set()
            assert let_go.wait(WAIT_SECONDS)

    def take() -> None:
        with lock.take():
            served.append("behind")

    def interrupt() -> None:
        wait_until(lambda: len(lock._waiting) == 1, WAIT_SECONDS, "the main thread to queue")
        signal.pthread_kill(main, signal.SIGUSR1)

    holder, interrupter = threading.Thread(target=hold), threading.Thread(target=interrupt)
    holder.start()
    assert held.wait(WAIT_SECONDS)
    interrupter.start()
    with pytest.raises(Interrupted), lock.take():
        raise NotImplementedError
    interrupter.join(WAIT_SECONDS)
    behind = queue(lock, threading.Thread(target=take))
    let_go.set()
    for thread in (holder, behind):
        thread.join(WAIT_SECONDS)
    assert served == ["behind"]
