"""When a worker has committed what: the moments that its rates and delays are taken from."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Condition

from bench.case import WrongResult
from holdfast import App
from holdfast.runtime.signals import Committed, Signal

ARRIVAL_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Moment:
    """Something happened to the events up to `position`, at a time of `time.perf_counter`.

    That clock is the same in all processes of a machine.
    """

    position: int
    at: float


@dataclass(slots=True)
class Commits:
    """When which position was committed, in order, as the projector's thread says."""

    moments: list[Moment] = field(default_factory=list)
    _changed: Condition = field(default_factory=Condition)

    def note(self, position: int) -> None:
        """The transaction with the rows up to `position` is committed."""
        with self._changed:
            self.moments.append(Moment(position, time.perf_counter()))
            self._changed.notify_all()

    def listen_to(self, app: App) -> None:
        """Notes what the app's one projection commits."""

        def note(signal: Signal) -> None:
            if isinstance(signal, Committed):
                self.note(signal.position)

        app.listen(note)

    def wait_for(self, position: int) -> None:
        with self._changed:
            arrived = self._changed.wait_for(lambda: self._reached >= position, ARRIVAL_SECONDS)
        if not arrived:
            raise WrongResult(f"the projector is at {self._reached}, and should be at {position}")

    @classmethod
    def of_each(cls, app: App, projections: Iterable[str]) -> dict[str, Commits]:
        """Those of many projections, with one listener: each is called for every signal."""
        commits = {projection: cls() for projection in projections}

        def note(signal: Signal) -> None:
            if isinstance(signal, Committed):
                commits[signal.projection].note(signal.position)

        app.listen(note)
        return commits

    @property
    def _reached(self) -> int:
        return self.moments[-1].position if self.moments else 0
