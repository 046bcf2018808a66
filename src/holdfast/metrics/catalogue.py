"""Every metric there is: its name, kind, unit and labels, once for all the systems that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SECONDS = "s"
WHOSE = ("projection", "feed")
BATCH_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `bounds`: the upper bounds of a histogram's buckets."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    labels: tuple[str, ...] = WHOSE
    bounds: tuple[float, ...] = ()

    @property
    def opentelemetry_name(self) -> str:
        return f"holdfast.{self.name}"

    @property
    def prometheus_name(self) -> str:
        unit = "_seconds" if self.unit == SECONDS else ""
        total = "_total" if self.kind == "counter" else ""
        return f"holdfast_{self.name.replace('.', '_')}{unit}{total}"


PROCESSED = Metric(
    "events.processed",
    "counter",
    "{event}",
    "Events that were applied and committed, from the feed or from the queue.",
)
FAILED = Metric(
    "attempts.failed", "counter", "{attempt}", "Attempts at events that failed, whatever followed."
)
RETRIED = Metric(
    "events.retried", "counter", "{event}", "Decisions to wait and try the same event again."
)
SKIPPED = Metric(
    "events.skipped", "counter", "{event}", "Events that were passed without being applied."
)
DUPLICATES = Metric(
    "events.duplicate",
    "counter",
    "{event}",
    "Events that had been here before, and changed nothing.",
)
PARKED = Metric(
    "events.parked", "counter", "{event}", "Events that failed and were put in the queue."
)
DEAD = Metric(
    "events.dead",
    "counter",
    "{event}",
    "Parked events that are not tried again by themselves: they need a person.",
)
DRAINED = Metric("events.drained", "counter", "{event}", "Events that were applied from the queue.")
FAULTS = Metric("faults", "counter", "{fault}", "Faults: the projection has stopped.")
POLL_FAILURES = Metric(
    "poll.failures", "counter", "{failure}", "Times that the database could not be used."
)
BATCH_DURATION = Metric(
    "batch.duration",
    "histogram",
    SECONDS,
    "Time to apply and commit one batch of events.",
    bounds=BATCH_SECONDS,
)
QUEUE_ITEMS = Metric(
    "queue.items", "gauge", "{item}", "Items in the queue by status.", (*WHOSE, "status")
)
QUEUE_AGE = Metric(
    "queue.age",
    "gauge",
    SECONDS,
    "Age of the oldest item that is outstanding: pending, processing, failed or dead.",
)
LAG_EVENTS = Metric(
    "lag.events", "gauge", "{event}", "Positions between the checkpoint and the head of the feed."
)
LAG_TIME = Metric(
    "lag.time", "gauge", SECONDS, "Age of the oldest event that the projection has not come to."
)
STATE = Metric(
    "runner.state",
    "gauge",
    "1",
    "1 for the state that the projection is in, and for faulted also while it is paused; else 0.",
    (*WHOSE, "state"),
)

METRICS = (
    PROCESSED,
    FAILED,
    RETRIED,
    SKIPPED,
    DUPLICATES,
    PARKED,
    DEAD,
    DRAINED,
    FAULTS,
    POLL_FAILURES,
    BATCH_DURATION,
    QUEUE_ITEMS,
    QUEUE_AGE,
    LAG_EVENTS,
    LAG_TIME,
    STATE,
)
COUNTERS = tuple(metric for metric in METRICS if metric.kind == "counter")
HISTOGRAMS = tuple(metric for metric in METRICS if metric.kind == "histogram")
GAUGES = tuple(metric for metric in METRICS if metric.kind == "gauge")
