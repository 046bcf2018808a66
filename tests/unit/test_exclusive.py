"""A suspect event has the process to itself."""

import os
import threading

import pytest

from holdfast.runtime.failure import exclusive
from holdfast.runtime.failure.exclusive import ExclusiveRun
from tests.support.postgres import wait_until

WAIT_SECONDS = 30.0


def test_batches_go_side_by_side_and_a_suspect_waits_for_them() -> None:
    run = ExclusiveRun()
    together, alone = threading.Barrier(3), threading.Event()
    leave, order = threading.Event(), []

    def batch() -> None:
        with run.shared():
            together.wait(WAIT_SECONDS)
            leave.wait(WAIT_SECONDS)
            order.append("batch")

    def suspect() -> None:
        with run.alone():
            order.append("suspect")
            alone.set()

    batches = [threading.Thread(target=batch) for _ in range(2)]
    for thread in batches:
        thread.start()
    together.wait(WAIT_SECONDS)
    suspected = threading.Thread(target=suspect)
    suspected.start()
    wait_until(lambda: len(run._line) == 1, WAIT_SECONDS, "the suspect to wait")
    assert not alone.is_set()
    leave.set()
    for thread in (*batches, suspected):
        thread.join(WAIT_SECONDS)
    assert order == ["batch", "batch", "suspect"]


def test_nothing_begins_beside_a_suspect() -> None:
    run = ExclusiveRun()
    inside, leave, begun = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    def suspect() -> None:
        with run.alone():
            inside.set()
            leave.wait(WAIT_SECONDS)
            seen.append(begun.is_set())

    def batch() -> None:
        with run.shared():
            begun.set()

    first = threading.Thread(target=suspect)
    first.start()
    inside.wait(WAIT_SECONDS)
    second = threading.Thread(target=batch)
    second.start()
    wait_until(lambda: begun.is_set() or len(run._line) == 1, WAIT_SECONDS, "the batch to wait")
    leave.set()
    for thread in (first, second):
        thread.join(WAIT_SECONDS)
    assert seen == [False]
    assert begun.is_set()


def test_suspects_leave_room_for_the_others() -> None:
    """However many they are, and however soon they come again."""
    run, order = ExclusiveRun(), list[str]()

    def come(name: str, *, alone: bool) -> threading.Thread:
        def work() -> None:
            with run.alone() if alone else run.shared():
                order.append(name)

        before = len(run._line)
        thread = threading.Thread(target=work)
        thread.start()
        wait_until(lambda: len(run._line) > before, WAIT_SECONDS, "it to wait")
        return thread

    with run.alone():
        waiting = [come("suspect", alone=True), come("batch", alone=False)]
        waiting += [come("batch", alone=False), come("suspect", alone=True)]
        waiting.append(come("batch", alone=False))
    for thread in waiting:
        thread.join(WAIT_SECONDS)
    assert order == ["suspect", "batch", "batch", "suspect", "batch"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_nothing_of_its_parent() -> None:
    """A batch and a suspect of other threads exist only in the parent."""
    inside, leave = threading.Event(), threading.Event()

    def suspect() -> None:
        with exclusive.exclusive_run.alone():
            inside.set()
            leave.wait(WAIT_SECONDS)

    thread = threading.Thread(target=suspect)
    thread.start()
    inside.wait(WAIT_SECONDS)
    pid = os.fork()
    if pid == 0:
        tried = threading.Thread(target=_run_both, daemon=True)
        tried.start()
        tried.join(2.0)
        os._exit(int(tried.is_alive()))
    leave.set()
    thread.join(WAIT_SECONDS)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _run_both() -> None:
    with exclusive.exclusive_run.shared():
        pass
    with exclusive.exclusive_run.alone():
        pass
