"""A suspect event has the process to itself."""

import threading

from holdfast.core.suspicion import Solitude

WAIT_SECONDS = 30.0


def test_batches_go_side_by_side_and_a_suspect_waits_for_them() -> None:
    solitude = Solitude()
    together, alone = threading.Barrier(3), threading.Event()
    leave, order = threading.Event(), []

    def batch() -> None:
        with solitude.shared():
            together.wait(WAIT_SECONDS)
            leave.wait(WAIT_SECONDS)
            order.append("batch")

    def suspect() -> None:
        with solitude.alone():
            order.append("suspect")
            alone.set()

    batches = [threading.Thread(target=batch) for _ in range(2)]
    for thread in batches:
        thread.start()
    together.wait(WAIT_SECONDS)
    suspected = threading.Thread(target=suspect)
    suspected.start()
    assert not alone.is_set()
    leave.set()
    for thread in (*batches, suspected):
        thread.join(WAIT_SECONDS)
    assert order == ["batch", "batch", "suspect"]


def test_nothing_begins_beside_a_suspect() -> None:
    solitude = Solitude()
    inside, leave, begun = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    def suspect() -> None:
        with solitude.alone():
            inside.set()
            leave.wait(WAIT_SECONDS)
            seen.append(begun.is_set())

    def batch() -> None:
        with solitude.shared():
            begun.set()

    first = threading.Thread(target=suspect)
    first.start()
    inside.wait(WAIT_SECONDS)
    second = threading.Thread(target=batch)
    second.start()
    leave.set()
    for thread in (first, second):
        thread.join(WAIT_SECONDS)
    assert seen == [False]
    assert begun.is_set()
