"""Events that fail, hang and kill their process, as files say.

The folder has a file for each event that is spoilt, named by its amount. The file says what is to
happen: a decision, `hold`, or a way to die. When the file goes, the event is well again.
"""

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import Backoff, Event, Failure, Fatal, Park, Policy, Retry, Skip
from holdfast.model.policy import Decision
from tests.world.app import Moved, Name
from tests.world.speech import say
from tests.world.wanted import Wanted
from tests.world.watched import Watch

LATER_SECONDS = 5.0
"""When a parked event is tried again by itself."""
RETRY_SECONDS = 0.02

TWICE = Backoff(max_attempts=2, delay_seconds=0.001, jitter=0.0)
LATER = Backoff(max_attempts=2, delay_seconds=LATER_SECONDS, multiplier=1.0, jitter=0.0)
SOON = Backoff(max_attempts=3, delay_seconds=RETRY_SECONDS, jitter=0.0)
AGAIN = Backoff(max_attempts=None, delay_seconds=0.001, max_delay_seconds=0.001, jitter=0.0)
DECISIONS: dict[str, Decision] = {
    "fatal": Fatal(),
    "skip": Skip(),
    "park": Park(),
    "park and retry": Park(LATER),
    "retry, then fatal": Retry(TWICE, Fatal()),
    "retry, then skip": Retry(TWICE, Skip()),
    "retry, then park": Retry(TWICE, Park()),
    "retry, then park and retry": Retry(TWICE, Park(LATER)),
}
WAYS: dict[str, Decision] = {
    **DECISIONS,
    "park and soon": Park(SOON),
    "park and again": Park(AGAIN),
}
PARKS = Policy(on_error=lambda _: Park())


class Poisoned(Exception):
    """The event can't be applied now."""


def patient() -> Policy:
    """As many attempts as outbox delivery makes by default, but soon after one another."""
    policy = Policy.outbox()
    backoff = replace(policy.backoff, delay_seconds=RETRY_SECONDS, max_delay_seconds=RETRY_SECONDS)
    return replace(policy, backoff=backoff)


class Spoilt:
    """The files that say which events fail, as the test writes them and the worker reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wanted(self, url: str, projection: Name) -> Wanted:
        """A worker whose events fail as these files say, with small batches."""
        folder = str(self.folder)
        return Wanted(url, (projection,), spoilt=folder, batch_events=7, drain_events=5)

    def __setitem__(self, number: int, way: str) -> None:
        draft = self.folder / f".{number}"
        draft.write_text(way)
        draft.rename(self.folder / str(number))

    def __delitem__(self, number: int) -> None:
        (self.folder / str(number)).unlink()

    def get(self, number: int) -> str | None:
        try:
            return (self.folder / str(number)).read_text()
        except FileNotFoundError:
            return None

    def numbers(self) -> Sequence[int]:
        return sorted(int(file.name) for file in self.folder.iterdir() if file.name[0] != ".")

    def clear(self) -> None:
        for number in self.numbers():
            del self[number]


class Suffering:
    """What the events of a worker meet."""

    def __init__(self, spoilt: Spoilt | None, watch: Watch, *, random_seconds: float) -> None:
        self._spoilt, self._watch, self._random_seconds = spoilt, watch, random_seconds

    def policy(self, *, is_patient: bool) -> Policy | None:
        if is_patient:
            return patient()
        return None if self._spoilt is None else Policy(on_error=self._decide)

    def handle(self, event: Event[Moved]) -> None:
        say(f"Handling {event.stream} {event.version}")
        self.before(event)

    def before(self, event: Event[Moved]) -> None:
        """Holds the event before anything is done for it, if the file says so."""
        self._watch.trace("begin", event.stream, event.position)
        number = event.data.amount
        if self._way(number) == "hold first":
            say(f"Holding {number}")
            while self._way(number) == "hold first":
                time.sleep(0.005)
            say(f"Released {number}")

    def after(self, event: Event[Moved]) -> None:
        try:
            time.sleep(random.uniform(0, self._random_seconds))
            way = self._way(event.data.amount)
            if way is not None and way != "hold first":
                self._suffer(event.data.amount, way)
        finally:
            self._watch.trace("end", event.stream, event.position)

    def _suffer(self, number: int, way: str) -> None:
        say(f"Suffering {number} {way}")
        match way:
            case "exit":
                os._exit(1)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "memory":
                hoard: list[Any] = []
                while True:
                    hoard.append(bytearray(100_000))
            case "hold":
                while self._way(number) == "hold":
                    time.sleep(0.005)
            case _:
                raise Poisoned(number)

    def _decide(self, failure: Failure) -> Decision:
        """As the file says; an event that is to blame for a death, as the file named 0 says."""
        way = self._way(failure.event.data.amount)
        return WAYS[way if way in WAYS else self._way(0) or "park"]

    def _way(self, number: int) -> str | None:
        return None if self._spoilt is None else self._spoilt.get(number)
