"""The catalogue, what each signal adds, and when the database is read."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from holdfast import App, ConfigError, Projection, QueueCount, StoreUnavailable, on
from holdfast.metrics import catalogue, observe_prometheus
from holdfast.metrics import gauges as gauges_module
from holdfast.metrics.catalogue import Metric
from holdfast.metrics.gauges import Gauges
from holdfast.metrics.listener import listener
from holdfast.runtime import signals
from holdfast.runtime.signals import Listener, Signal
from holdfast.runtime.status import ProjectionStatus
from holdfast.runtime.store.faults import Fault


def failed(decision: str) -> signals.Failed:
    names, error = ("4a1f", "T", "stream", "lane"), ("ValueError", "no", "Traceback …")
    return signals.Failed("p", "f", 4, *names, 1, 3, decision, None, *error)


FAULT = Fault("ValueError", "no", "Traceback …", datetime(2026, 1, 1, tzinfo=UTC))
SIGNALS: list[tuple[Signal, dict[Metric, float]]] = [
    (signals.Started("p", "f", 3, 2), dict.fromkeys(catalogue.COUNTERS, 0)),
    (
        signals.Committed("p", "f", 9, 6, 0.5),
        {catalogue.PROCESSED: 6, catalogue.BATCH_DURATION: 0.5},
    ),
    (signals.Stopped("p", "f", 9), {}),
    (signals.LeaseLost("p", "f", "why"), {}),
    (signals.BegunAgain("p", "f"), {}),
    (signals.Singled("p", "f", 7, 2, 10_000), {}),
    (signals.PollFailed("p", "f", 2, "why", 0.2), {catalogue.POLL_FAILURES: 1}),
    (signals.PollRecovered("p", "f", 2), {}),
    (signals.Refused("p", "f", 7, "no"), {}),
    (failed("skip"), {catalogue.FAILED: 1}),
    (failed("retry"), {catalogue.FAILED: 1, catalogue.RETRIED: 1}),
    (signals.Changed("p", "f", "reset", "anna"), {}),
    (signals.Waited("p", "f", 0.5), {catalogue.WAITED: 0.5}),
    (signals.BreakerOpened("p", "f", 4, 30.0), {}),
    (signals.Skipped("p", "f", 4, "T", "lane"), {catalogue.SKIPPED: 1}),
    (signals.Duplicates("p", "f", 3), {catalogue.DUPLICATES: 3}),
    (signals.Parked("p", "f", 4, "T", "lane"), {catalogue.PARKED: 1}),
    (signals.Queued("p", "f", "lane", 3), {}),
    (signals.Died("p", "f", 4, "T", "lane"), {catalogue.DEAD: 1}),
    (
        signals.Drained("p", "f", "lane", 5, True),
        {catalogue.DRAINED: 5, catalogue.PROCESSED: 5},
    ),
    (signals.Recovered("p", "f", 4, 2), {}),
    (signals.CallbackFailed("p", "f", "ValueError", "no"), {}),
    (signals.HookFailed("p", "f", "ValueError", "no"), {}),
    (signals.Paused("p", "f", "anna"), {}),
    (signals.Resumed("p", "f"), {}),
    (signals.Faulted("p", "f", FAULT), {catalogue.FAULTS: 1}),
]


@pytest.mark.parametrize(("signal", "expected"), SIGNALS, ids=lambda x: type(x).__name__)
def test_what_a_signal_adds(signal: Signal, expected: dict[Metric, float]) -> None:
    recorded: dict[Metric, float] = {}

    def record(metric: Metric, value: float, labels: tuple[str, str]) -> None:
        assert labels == ("p", "f")
        recorded[metric] = value

    listener(record)(signal)
    assert recorded == expected


def test_every_signal_is_tested() -> None:
    assert {type(signal) for signal, _ in SIGNALS} == set(get_args(Signal))
    added = {metric for _, values in SIGNALS for metric, value in values.items() if value}
    assert added == {*catalogue.COUNTERS, *catalogue.HISTOGRAMS}


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    name = metric.prometheus_name
    assert name.startswith("holdfast_")
    assert name.endswith("_total") == (metric.kind == "counter")
    assert ("_seconds" in name) == (metric.unit == "s")
    assert metric.opentelemetry_name.startswith("holdfast.")
    assert "seconds" not in metric.opentelemetry_name
    assert metric.labels[:2] == ("projection", "feed")
    assert bool(metric.bounds) == (metric.kind == "histogram")
    assert metric.description.endswith(".")


def test_names_are_unique() -> None:
    names = [metric.prometheus_name for metric in catalogue.METRICS]
    assert len(set(names)) == len(names)
    assert len(names) == len(catalogue.COUNTERS + catalogue.HISTOGRAMS + catalogue.GAUGES)


class Nothing(Projection):
    @on("*")
    def any(self, event: object, tx: object) -> None:
        pass


class FakeApp:
    """Counts how often it is read."""

    projections = ("p",)

    def __init__(self) -> None:
        self.reads = 0
        self.is_away = False
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    @property
    def queue(self) -> FakeApp:
        return self

    def listen(self, listener: Listener) -> None:
        pass

    def stats(self) -> Sequence[QueueCount]:
        return [
            QueueCount("p", "failed", "ValueError", 2, 5.0),
            QueueCount("p", "failed", "KeyError", 3, 9.0),
            QueueCount("p", "pending", None, 4, 7.0),
            QueueCount("p", "skipped", None, 1, 100.0),
            QueueCount("not ours", "dead", None, 1, 200.0),
        ]

    def status(self) -> Sequence[ProjectionStatus]:
        self.reads += 1
        self.reached.set()
        assert self.go_on.wait(30)
        if self.is_away:
            raise StoreUnavailable("no")
        return []


def test_the_queue_is_summed_over_error_types() -> None:
    with App("sqlite:///:memory:") as app:
        app.projection(name="p")(Nothing)
        app.catch_up()
        fake = FakeApp()
        fake.status = app.status  # type: ignore[method-assign]
        values = Gauges(fake).read()
    items = values[catalogue.QUEUE_ITEMS]
    assert {labels[2]: count for labels, count in items.items() if count} == {
        "failed": 5,
        "pending": 4,
        "skipped": 1,
    }
    assert {labels[:2] for labels in items} == {("p", "journal")}
    assert values[catalogue.QUEUE_AGE] == {("p", "journal"): 9.0}


def test_the_database_is_read_at_most_once_a_second() -> None:
    app, now = FakeApp(), 0.0
    gauges = Gauges(app, monotonic=lambda: now)
    asked: Counter[float] = Counter()
    for tenth in range(25):
        now = tenth / 10
        before = app.reads
        gauges.read()
        asked[now] = app.reads - before
    assert [moment for moment, times in asked.items() if times] == [0.0, 1.0, 2.0]


def test_concurrent_readers_share_one_read() -> None:
    app = FakeApp()
    app.go_on.clear()
    gauges = Gauges(app, monotonic=lambda: 0.0)
    threads = [threading.Thread(target=gauges.read, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert app.reached.wait(30)
    app.go_on.set()
    for thread in threads:
        thread.join(30)
    assert app.reads == 1


def test_a_database_that_is_away_has_no_values_and_is_read_once_a_second() -> None:
    app, now = FakeApp(), 0.0
    gauges = Gauges(app, monotonic=lambda: now)
    assert set(gauges.read()) == set(catalogue.GAUGES)
    app.is_away, now = True, 1.0
    assert gauges.read() == {}
    assert gauges.read() == {}
    assert app.reads == 2
    app.is_away, now = False, 2.0
    assert set(gauges.read()) == set(catalogue.GAUGES)


def test_a_read_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges_module, "READ_TIMEOUT_SECONDS", 0.01)
    app = FakeApp()
    app.go_on.clear()
    gauges = Gauges(app, monotonic=lambda: 0.0)
    assert [gauges.read(), gauges.read()] == [{}, {}]
    monkeypatch.setattr(gauges_module, "READ_TIMEOUT_SECONDS", 30)
    app.go_on.set()
    assert set(gauges.read()) == set(catalogue.GAUGES)
    assert app.reads == 1


def test_an_unexpected_error_is_raised_to_the_reader() -> None:
    app = FakeApp()
    app.stats = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    with pytest.raises(ZeroDivisionError):
        Gauges(app).read()


def test_to_observe_does_not_read_the_database() -> None:
    app, registry = FakeApp(), CollectorRegistry()
    observe_prometheus(app, registry=registry)
    assert app.reads == 0
    list(registry.collect())
    assert app.reads == 1


def test_prometheus_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'holdfast\[prometheus\]'"):
        observe_prometheus(FakeApp())


LATE = """
import sys
import holdfast
slow = ("opentelemetry", "prometheus_client", "holdfast.metrics")
assert not [m for m in sys.modules if m.startswith(slow)]
import holdfast.metrics
assert not [m for m in sys.modules if m.startswith(slow[:2])]
app = holdfast.App("sqlite:///:memory:")
holdfast.metrics.observe_opentelemetry(app)
assert "opentelemetry.metrics" in sys.modules
assert not [m for m in sys.modules if m.startswith(("opentelemetry.sdk", "prometheus_client"))]

from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))

@app.projection
class Things(holdfast.Projection):
    @holdfast.on("*")
    def any(self, event, tx):
        pass

app.journal.append("a", [holdfast.NewEvent({}, type="T")])
app.catch_up()
(resource,) = reader.get_metrics_data().resource_metrics
(scope,) = resource.scope_metrics
assert scope.scope.name == "holdfast"
values = {m.name: m.data.data_points for m in scope.metrics}
(processed,) = values["holdfast.events.processed"]
assert (processed.value, processed.attributes["projection"]) == (1, "things")
"""


def test_nothing_is_imported_before_it_is_needed_and_the_provider_may_come_later() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
