"""The gauges, read from the database on demand, at most once a second."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, get_args, get_type_hints

from holdfast.errors import HoldfastError
from holdfast.metrics import catalogue
from holdfast.metrics.catalogue import Metric
from holdfast.runtime.signals import Listener
from holdfast.runtime.status import ProjectionStatus
from holdfast.runtime.store.queue_items import OUTSTANDING, STATUSES, QueueCount

READ_INTERVAL_SECONDS = 1.0
"""Minimum interval between two reads of the database."""

READ_TIMEOUT_SECONDS = 5.0
"""Timeout of a read, after which the database counts as away."""

STATES: tuple[str, ...] = get_args(get_type_hints(ProjectionStatus)["state"])

Labels = tuple[str, ...]
Values = Mapping[Metric, Mapping[Labels, float]]
"""Each gauge's values, by the values of its labels."""


class MeasuredQueue(Protocol):
    """The part of a queue that gauges need."""

    def stats(self) -> Sequence[QueueCount]: ...


class MeasuredApp(Protocol):
    """The part of an App that metrics need."""

    @property
    def projections(self) -> tuple[str, ...]: ...

    @property
    def queue(self) -> MeasuredQueue: ...

    def status(self) -> Sequence[ProjectionStatus]: ...

    def listen(self, listener: Listener) -> None: ...


class Gauges:
    """Reads the gauges of an app's projections. Safe to use from many threads.

    While the database does not answer, one thread waits for it, however many threads read.
    """

    def __init__(
        self, app: MeasuredApp, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._monotonic = app, monotonic
        self._changed = threading.Condition()
        self._is_reading = False
        self._read_at: float | None = None
        self._values: Values = {}
        self._error: Exception | None = None

    def read(self) -> Values:
        """Values that are at most an interval old; none while the database is away."""
        with self._changed:
            now = self._monotonic()
            if not self._is_reading and (
                self._read_at is None or now - self._read_at >= READ_INTERVAL_SECONDS
            ):
                threading.Thread(target=self._read, name="holdfast gauges", daemon=True).start()
                self._is_reading = True
            if not self._changed.wait_for(lambda: not self._is_reading, READ_TIMEOUT_SECONDS):
                return {}
            if self._error is not None:
                raise self._error
            return self._values

    def _read(self) -> None:
        values: Values = {}
        failed: Exception | None = None
        try:
            values = measure(self._app)
        except HoldfastError:
            pass  # `poll.failures` counts it. Old values would look like a healthy database.
        except Exception as error:
            failed = error
        with self._changed:
            self._values, self._error, self._read_at = values, failed, self._monotonic()
            self._is_reading = False
            self._changed.notify_all()


def measure(app: MeasuredApp) -> Values:
    """Reads every gauge from the database."""
    statuses = [status for status in app.status() if status.projection in app.projections]
    values: dict[Metric, dict[Labels, float]] = {metric: {} for metric in catalogue.GAUGES}
    items: defaultdict[tuple[str, str], int] = defaultdict(int)
    ages: defaultdict[str, float] = defaultdict(float)
    for count in app.queue.stats():
        items[count.projection, count.status] += count.items
        if count.status in OUTSTANDING:
            ages[count.projection] = max(ages[count.projection], count.oldest_seconds)
    for status in statuses:
        labels = (status.projection, status.feed)
        if status.is_head_known:  # Otherwise the lag is unknown, and 0 would look healthy.
            values[catalogue.LAG_EVENTS][labels] = status.lag_events
            values[catalogue.LAG_TIME][labels] = status.lag_seconds
        values[catalogue.STUCK_EVENTS][labels] = status.stuck_events
        values[catalogue.STUCK_TIME][labels] = status.stuck_seconds
        values[catalogue.QUEUE_AGE][labels] = ages[status.projection]
        states = {status.state, "faulted"} if status.is_faulted else {status.state}
        for state in STATES:
            values[catalogue.STATE][*labels, state] = float(state in states)
        for name in STATUSES:
            values[catalogue.QUEUE_ITEMS][*labels, name] = items[status.projection, name]
    return values
