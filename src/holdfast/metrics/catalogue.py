"""Every metric: its name, kind, unit, labels and description, for OpenTelemetry and Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]

SECONDS = "s"
LABELS = ("projection", "feed")
BATCH_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `bounds` are the upper bounds of a histogram's buckets."""

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...] = LABELS
    bounds: tuple[float, ...] = ()

    @property
    def opentelemetry_name(self) -> str:
        return f"holdfast.{self.name}"

    @property
    def prometheus_name(self) -> str:
        unit = "_seconds" if self.unit == SECONDS else ""
        total = "_total" if self.kind == "counter" else ""
        return f"holdfast_{self.name.replace('.', '_')}{unit}{total}"


def _counter(name: str, unit: str, description: str) -> Metric:
    return Metric(name, "counter", unit, description)


def _gauge(name: str, unit: str, description: str, *labels: str) -> Metric:
    return Metric(name, "gauge", unit, description, (*LABELS, *labels))


PROCESSED = _counter(
    "events.processed", "{event}", "Events applied and committed, from the feed or from the queue."
)
FAILED = _counter("attempts.failed", "{attempt}", "Failed attempts, whatever the policy decided.")
RETRIED = _counter("events.retried", "{event}", "Decisions to wait and try the same event again.")
WAITED = _counter(
    "retry.wait",
    SECONDS,
    "Time for which the projection stood still before it tried an event again.",
)
SKIPPED = _counter("events.skipped", "{event}", "Events passed without being applied.")
DUPLICATES = _counter(
    "events.duplicate", "{event}", "Events that had come before, and changed nothing."
)
PARKED = _counter("events.parked", "{event}", "Events that failed and were put in the queue.")
DEAD = _counter(
    "events.dead",
    "{event}",
    "Parked events that are not tried again by themselves: they need an operator.",
)
DRAINED = _counter("events.drained", "{event}", "Events applied from the queue.")
FAULTS = _counter("faults", "{fault}", "Faults, each of which has stopped the projection.")
POLL_FAILURES = _counter(
    "poll.failures", "{failure}", "Failures to reach the database or the brokers."
)
BATCH_DURATION = Metric(
    "batch.duration",
    "histogram",
    SECONDS,
    "Time to apply and commit one batch of events.",
    bounds=BATCH_SECONDS,
)
QUEUE_ITEMS = _gauge("queue.items", "{item}", "Items in the queue by status.", "status")
QUEUE_AGE = _gauge(
    "queue.age",
    SECONDS,
    "Age of the oldest item that is outstanding: pending, processing, retrying, failed or dead.",
)
LAG_EVENTS = _gauge(
    "lag.events", "{event}", "Positions between the checkpoint and the head of the feed."
)
LAG_TIME = _gauge(
    "lag.time",
    SECONDS,
    "Age of the oldest event that is still to be applied: not reached, tried again, or due.",
)
STUCK_EVENTS = _gauge(
    "stuck.events", "{event}", "Events that wait for an operator: dead ones, and those behind them."
)
STUCK_TIME = _gauge("stuck.time", SECONDS, "Age of the oldest event that waits for an operator.")
STATE = _gauge(
    "runner.state",
    "1",
    "1 for the state that the projection is in, and for faulted also while it is paused; else 0.",
    "state",
)

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
COUNTERS = tuple(metric for metric in METRICS if metric.kind == "counter")
HISTOGRAMS = tuple(metric for metric in METRICS if metric.kind == "histogram")
GAUGES = tuple(metric for metric in METRICS if metric.kind == "gauge")
