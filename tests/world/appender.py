"""Appends events all the time, through every failure, and keeps account of what was acknowledged.

Also a process, `python -m tests.world.appender`, that says of each append how it went.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Self
from uuid import UUID, uuid4

from holdfast import App, NewEvent, StoreUnavailable
from tests.world.app import Moved, build_app
from tests.world.speech import say
from tests.world.wanted import wanted_here

STREAMS = 7


class Background:
    """A thread that runs in this block until it is told to stop; an error of it is raised then."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self._run_until, self._stop = run, threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="appender")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when the thread has ended. May be called again."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._run_until(self._stop)
        except BaseException as error:
            self._error = error


class Appender(Background):
    """A thread that appends until the block ends. An append that fails is tried again as it is.

    With the same event ids, since nobody knows whether an append whose connection was cut is in.
    `may_append` is asked before every append, so that the journal does not run away.
    """

    def __init__(
        self, app: App, *, seed: int, may_append: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(self._append_until)
        self.acknowledged: list[UUID] = []
        self.failures = 0
        self._app, self._may_append = app, may_append
        self._random = random.Random(seed)

    def _append_until(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if self._may_append():
                self._append()
            else:
                time.sleep(0.01)

    def _append(self) -> None:
        stream, events = random_append(self._random)
        while True:
            try:
                self._app.journal.append(stream, events)
            except StoreUnavailable:
                self.failures += 1
                time.sleep(0.02)
            else:
                self.acknowledged += [event.id for event in events if event.id]
                return


def random_append(chance: random.Random) -> tuple[str, list[NewEvent]]:
    """A stream, and a few events for it with ids of their own."""
    count = chance.randint(1, 4)
    events = [NewEvent(Moved(chance.randint(-50, 100)), id=uuid4()) for _ in range(count)]
    return f"account-{chance.randrange(STREAMS)}", events


def main() -> None:
    wanted = wanted_here()
    assert wanted is not None
    app = build_app(wanted.url)
    chance = random.Random()
    while True:
        stream, events = random_append(chance)
        ids = " ".join(str(event.id) for event in events)
        try:
            app.journal.append(stream, events)
        except StoreUnavailable as error:
            say(f"Failed {ids} {error}")
        else:
            say(f"Appended {ids}")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
