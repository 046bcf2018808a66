"""The metrics in a meter of OpenTelemetry's API. The SDK decides where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from holdfast.metrics import catalogue
from holdfast.metrics.catalogue import Metric
from holdfast.metrics.gauges import Gauges, MeasuredApp
from holdfast.metrics.listener import listener

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

METER = "holdfast"


def observe_opentelemetry(app: MeasuredApp, *, provider: MeterProvider | None = None) -> None:
    """Measures an app with a meter provider. The default is the global one, even if set later."""
    from opentelemetry.metrics import get_meter

    meter = get_meter(METER, meter_provider=provider)
    counters = {
        metric: meter.create_counter(metric.opentelemetry_name, metric.unit, metric.description)
        for metric in catalogue.COUNTERS
    }
    histograms = {
        metric: meter.create_histogram(
            metric.opentelemetry_name,
            metric.unit,
            metric.description,
            explicit_bucket_boundaries_advisory=metric.bounds,
        )
        for metric in catalogue.HISTOGRAMS
    }

    def record(metric: Metric, value: float, labels: tuple[str, str]) -> None:
        attributes = dict(zip(metric.labels, labels, strict=True))
        if metric in counters:
            counters[metric].add(value, attributes)
        else:
            histograms[metric].record(value, attributes)

    gauges = Gauges(app)
    for metric in catalogue.GAUGES:
        meter.create_observable_gauge(
            metric.opentelemetry_name, [_callback(metric, gauges)], metric.unit, metric.description
        )
    app.listen(listener(record))


def _callback(metric: Metric, gauges: Gauges) -> Callable[[CallbackOptions], Iterable[Observation]]:
    from opentelemetry.metrics import Observation

    def observations(_: CallbackOptions) -> Iterable[Observation]:
        for labels, value in gauges.read().get(metric, {}).items():
            yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

    return observations
