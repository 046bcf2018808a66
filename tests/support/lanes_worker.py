"""A worker whose events fail, hang and kill it as files say: `holdfast run …lanes_worker:app`.

The folder has a file for each event that is spoilt, named by its number. In the file stands what is
to happen: a decision, `hold`, or a way to die. When the file goes, the event is well again.
"""

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from holdfast import Backoff, Decision, Event, Failure, Park, Poll, Skip
from tests.support.lanes import DECISIONS, KIND, Kind, Poisoned, Stepped, build_lanes_app
from tests.support.limits import set_limits, small_batches
from tests.support.outbox_worker import (
    DEFAULT_POLICY,
    concurrency,
    make_short,
    open_watched,
    patient,
    trace,
)
from tests.support.worker import URL, die_with_parent, say, say_signal

SPOILT = "LANES_SPOILT"
SLOW_SECONDS = "LANES_SLOW_SECONDS"
"""Spent after the work of every third event."""
RANDOM_SECONDS = "LANES_RANDOM_SECONDS"
"""Spent at most after the work of every event."""
SPARE_BYTES = "LANES_SPARE_BYTES"
"""How much more memory the process may take, from when it is loaded."""
DEATHS = ("exit", "kill", "memory")

SOON = Backoff(max_attempts=3, delay_seconds=0.02, jitter=0.0)
AGAIN = Backoff(max_attempts=None, delay_seconds=0.001, max_delay_seconds=0.001, jitter=0.0)
WAYS: dict[str, Decision] = {
    **DECISIONS,
    "park and soon": Park(SOON),
    "park and again": Park(AGAIN),
    "skip": Skip(),
}


class Spoilt:
    """The files that say which events fail, as the test writes them and the worker reads them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __setitem__(self, number: int, way: str) -> None:
        draft = self._folder / f".{number}"
        draft.write_text(way)
        draft.rename(self._folder / str(number))

    def __delitem__(self, number: int) -> None:
        (self._folder / str(number)).unlink()

    def get(self, number: int) -> str | None:
        try:
            return (self._folder / str(number)).read_text()
        except FileNotFoundError:
            return None

    def numbers(self) -> Sequence[int]:
        return sorted(int(file.name) for file in self._folder.iterdir() if file.name[0] != ".")

    def clear(self) -> None:
        for number in self.numbers():
            del self[number]


def suffer(event: Event[Stepped], spoilt: Spoilt, slow_seconds: float) -> None:
    """What the file says, if there is one."""
    number = event.data.number
    if slow_seconds and number % 3 == 0:
        time.sleep(slow_seconds)
    way = spoilt.get(number)
    if way is None:
        return
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
            while spoilt.get(number) == "hold":
                time.sleep(0.005)
        case "hold first":
            pass
        case _:
            raise Poisoned(number)


def suffer_traced(event: Event[Stepped], spoilt: Spoilt, slow_seconds: float) -> None:
    try:
        if RANDOM_SECONDS in os.environ:
            time.sleep(random.uniform(0, float(os.environ[RANDOM_SECONDS])))
        suffer(event, spoilt, slow_seconds)
    finally:
        trace("end", event.stream, event.position)


def suffer_first(event: Event[Stepped], spoilt: Spoilt) -> None:
    """Holds the event before anything is done for it, if the file says so."""
    trace("begin", event.stream, event.position)
    number = event.data.number
    if spoilt.get(number) == "hold first":
        say(f"Holding {number}")
        while spoilt.get(number) == "hold first":
            time.sleep(0.005)
        say(f"Released {number}")


def decide(failure: Failure, spoilt: Spoilt) -> Decision:
    """As the file says; an event that is to blame for a death, as the file named 0 says."""
    way = spoilt.get(failure.event.data.number)
    if way not in WAYS:
        way = spoilt.get(0) or "park"
    return WAYS[way]


def limit_memory(spare_bytes: int) -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + spare_bytes, resource.RLIM_INFINITY))


if SPOILT in os.environ:
    threading.Thread(target=die_with_parent, daemon=True).start()
    spoilt = Spoilt(Path(os.environ[SPOILT]))
    slow_seconds = float(os.environ.get(SLOW_SECONDS, "0"))
    make_short()
    app = build_lanes_app(
        os.environ[URL],
        cast(Kind, os.environ[KIND]),
        spoil=lambda event: suffer_traced(event, spoilt, slow_seconds),
        spoil_first=lambda event: suffer_first(event, spoilt),
        policy=patient() if DEFAULT_POLICY in os.environ else None,
        concurrency=concurrency(),
        open_app=open_watched,
        on_error=lambda failure: decide(failure, spoilt),
        poll=Poll(
            max_consecutive_failures=None,
            failure_backoff=Backoff(delay_seconds=0.05, max_delay_seconds=0.2),
        ),
    )
    small_batches(app, 7)
    set_limits(app, drain_events=5)
    app.listen(say_signal)
    if SPARE_BYTES in os.environ:
        limit_memory(int(os.environ[SPARE_BYTES]))
    say("Loaded")
