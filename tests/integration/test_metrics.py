"""Every metric is right in OpenTelemetry and Prometheus, for every kind of failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from holdfast import (
    App,
    Backoff,
    Decision,
    Event,
    Failure,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    QueueSelection,
    Retry,
    Skip,
    StoreUnavailable,
    Tx,
    on,
)
from holdfast.metrics import catalogue, gauges, observe_opentelemetry, observe_prometheus
from holdfast.metrics.catalogue import Metric
from holdfast.runtime.store.queue_items import STATUSES
from holdfast.testing import FixedClock
from tests.contracts.samples import eventually, status_of
from tests.support.bank_topic import Make, Topic, register

WORK, STUCK = ("work", "journal"), ("stuck", "journal")
SOON = Backoff.constant(0.001)
LATER = Backoff.constant(100.0, max_attempts=1)
DECISIONS: dict[str, Decision] = {
    "skipped": Skip(),
    "parked": Park(retry=LATER),
    "dead": Park(retry=LATER),
    "retried": Retry(backoff=SOON),
}


@dataclass
class Happened:
    pass


class Metrics:
    """An app's metrics, read through OpenTelemetry and through Prometheus."""

    def __init__(self, app: App) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self._registry = CollectorRegistry()
        observe_opentelemetry(app, provider=self._provider)
        observe_prometheus(app, registry=self._registry)

    def close(self) -> None:
        self._provider.shutdown()

    def value(self, metric: Metric, *labels: str) -> float | None:
        """The value on which both agree; None if there is none."""
        named = dict(zip(metric.labels, labels, strict=True))
        point = self._point(metric, named)
        value = None if point is None else float(point.value)
        assert value == self._registry.get_sample_value(metric.prometheus_name, named)
        return value

    def histogram(self, metric: Metric, *labels: str) -> tuple[float, float, dict[float, float]]:
        """Count, sum, and how many values are at most as large as each bound."""
        named = dict(zip(metric.labels, labels, strict=True))
        point = self._point(metric, named)
        assert tuple(point.explicit_bounds) == metric.bounds
        below = {
            bound: float(sum(point.bucket_counts[: index + 1]))
            for index, bound in enumerate(metric.bounds)
        }

        def sample(suffix: str, **more: str) -> float | None:
            return self._registry.get_sample_value(
                metric.prometheus_name + suffix, {**named, **more}
            )

        assert sample("_count") == point.count
        assert sample("_sum") == point.sum
        assert {bound: sample("_bucket", le=str(bound)) for bound in metric.bounds} == below
        return point.count, point.sum, below

    def _point(self, metric: Metric, labels: dict[str, str]) -> Any:
        data = self._reader.get_metrics_data()
        found = [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for measured in scope.metrics
            for point in measured.data.data_points
            if measured.name == metric.opentelemetry_name and point.attributes == labels
        ]
        return found[0] if found else None


class World:
    """An app with a projection that fails in every way, and one that stops at "fatal"."""

    def __init__(self, url: str) -> None:
        self.clock = FixedClock()
        self.failures: Counter[str] = Counter()
        self.app = App(url, clock=self.clock)
        self.app.projection(name="work", policy=Policy(on_error=_decide))(self._work())
        self.app.projection(name="stuck")(Stuck)
        self.metrics = Metrics(self.app)

    def happen(self, *streams: str) -> None:
        """Appends an event to each of the streams, and catches up."""
        for stream in streams:
            self.app.journal.append(stream, [Happened()])
        self.app.catch_up()

    def queue(self) -> dict[str, float | None]:
        """What is in the queue of `work`, by status; statuses with nothing left out."""
        statuses = {
            status: self.metrics.value(catalogue.QUEUE_ITEMS, *WORK, status) for status in STATUSES
        }
        return {status: value for status, value in statuses.items() if value != 0}

    def state(self, whose: tuple[str, str]) -> str | None:
        """The one state whose gauge is 1, while the others are 0."""
        values = {
            state: self.metrics.value(catalogue.STATE, *whose, state) for state in gauges.STATES
        }
        if set(values.values()) == {None}:
            return None
        assert sorted(values.values(), key=str) == [0.0] * (len(gauges.STATES) - 1) + [1.0]
        return next(state for state, value in values.items() if value)

    def close(self) -> None:
        self.metrics.close()
        self.app.close()

    def _work(world) -> type[Projection]:
        class Work(Projection):
            @on(Happened)
            def happened(self, event: Event[Happened], tx: Tx) -> None:
                if event.stream == "slow":
                    world.clock.advance(0.25)
                if world.failures[event.stream] > 0:
                    world.failures[event.stream] -= 1
                    kind = StoreUnavailable if event.stream == "away" else ValueError
                    raise kind(event.stream)

        return Work


class Stuck(Projection):
    @on(Happened)
    def happened(self, event: Event[Happened], tx: Tx) -> None:
        if event.stream == "fatal":
            raise ValueError("no")


def _decide(failure: Failure) -> Decision:
    return DECISIONS[failure.lane]


@pytest.fixture
def world(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(gauges, "READ_INTERVAL_SECONDS", 0.0)
    world = World(store_url)
    yield world
    world.close()


def test_every_metric_is_right(world: World) -> None:
    value, whose = world.metrics.value, WORK
    assert value(catalogue.PROCESSED, *whose) is None
    world.happen("slow")
    # All are there from the start.
    assert {value(counter, *whose) for counter in catalogue.COUNTERS} == {0, 1}

    world.failures.update(away=1, skipped=1, parked=1, dead=9, retried=1)
    world.happen("away")
    assert value(catalogue.POLL_FAILURES, *whose) == 1
    assert value(catalogue.FAILED, *whose) == 0
    world.happen("fine", "skipped", "parked", "dead", "parked", "retried", "fine")
    assert value(catalogue.PROCESSED, *whose) == 5
    assert value(catalogue.FAILED, *whose) == 4
    assert value(catalogue.RETRIED, *whose) == 1
    assert 0 < (value(catalogue.WAITED, *whose) or 0) <= SOON.delay_seconds
    assert value(catalogue.SKIPPED, *whose) == 1
    assert value(catalogue.PARKED, *whose) == 2
    assert value(catalogue.DEAD, *whose) == 0
    assert value(catalogue.DRAINED, *whose) == 0
    assert world.queue() == {"pending": 1, "failed": 2, "skipped": 1}

    world.clock.advance(150)
    # The clock has moved by a retry's wait, too.
    assert value(catalogue.QUEUE_AGE, *whose) == pytest.approx(150, abs=0.01)
    world.happen()
    assert value(catalogue.PROCESSED, *whose) == 7
    assert value(catalogue.DRAINED, *whose) == 2
    assert value(catalogue.FAILED, *whose) == 5
    assert value(catalogue.DEAD, *whose) == 1
    assert world.queue() == {"dead": 1, "skipped": 1}

    with pytest.raises(ProjectionFaulted):
        world.happen("fatal", "fine")
    world.clock.advance(7)
    assert value(catalogue.FAULTS, *whose) == 0
    assert value(catalogue.FAULTS, *STUCK) == 1
    assert value(catalogue.LAG_EVENTS, *whose) == 0
    assert value(catalogue.LAG_EVENTS, *STUCK) == 2
    assert value(catalogue.LAG_TIME, *whose) == 0
    assert value(catalogue.LAG_TIME, *STUCK) == 7
    assert (world.state(WORK), world.state(STUCK)) == ("stopped", "faulted")
    for name, feed in (WORK, STUCK):
        processed = status_of(world.app, name).events_processed
        assert value(catalogue.PROCESSED, name, feed) == processed
    assert value(catalogue.PROCESSED, *whose) == 9
    # The retry has parted one of the batches.
    count, seconds, below = world.metrics.histogram(catalogue.BATCH_DURATION, *whose)
    assert (count, seconds, below[0.1], below[0.25]) == (5, 0.25, 4, 5)

    world.app.queue.resolve(QueueSelection(status="dead"), by="anna")
    assert world.queue() == {"resolved": 1, "skipped": 1}
    assert value(catalogue.QUEUE_AGE, *whose) == 0


def test_a_state_is_shown_while_it_lasts(world: World) -> None:
    assert world.state(WORK) is None
    with world.app.running():
        eventually(lambda: [s.state for s in world.app.status()] == ["running"] * 2)
        assert (world.state(WORK), world.state(STUCK)) == ("running", "running")
        world.app.pause("work", by="anna")
        assert (world.state(WORK), world.state(STUCK)) == ("paused", "running")
    assert (world.state(WORK), world.state(STUCK)) == ("paused", "stopped")


def test_projections_of_another_app_are_not_measured(world: World, store_url: str) -> None:
    with App(store_url) as other:
        other.projection(name="theirs")(Stuck)
        other.catch_up()
        assert [status.projection for status in world.app.status()] == ["theirs"]
        assert world.metrics.value(catalogue.LAG_EVENTS, "theirs", "journal") is None


def test_duplicates_are_counted(store_url: str, kafka_broker: str, kafka_topic: Make) -> None:
    topic = Topic(kafka_broker, kafka_topic())
    for version in (1, 2, 2, 1, 3):
        topic.credit("a", version)
    topic.flush()
    with App(store_url) as app:
        metrics = Metrics(app)
        register(app, topic.source())
        app.catch_up()
        whose = ("balances", f"{topic.name}[0]")
        assert metrics.value(catalogue.DUPLICATES, *whose) == 2
        assert metrics.value(catalogue.PROCESSED, *whose) == 3
        metrics.close()
