"""The metrics in a registry of Prometheus; needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from holdfast.metrics import catalogue
from holdfast.metrics.catalogue import Metric
from holdfast.metrics.gauges import Gauges, MeasuredApp, Values
from holdfast.metrics.listener import listener

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family


def observe_prometheus(app: MeasuredApp, *, registry: CollectorRegistry | None = None) -> None:
    """Measures an app in a registry, by default the client's own. Call it once for a registry."""
    prometheus_client = _client()
    where = prometheus_client.REGISTRY if registry is None else registry
    counters = {
        metric: prometheus_client.Counter(
            metric.prometheus_name, metric.description, metric.labels, registry=where
        )
        for metric in catalogue.COUNTERS
    }
    histograms = {
        metric: prometheus_client.Histogram(
            metric.prometheus_name,
            metric.description,
            metric.labels,
            buckets=metric.bounds,
            registry=where,
        )
        for metric in catalogue.HISTOGRAMS
    }

    def record(metric: Metric, value: float, labels: tuple[str, str]) -> None:
        if metric in counters:
            counters[metric].labels(*labels).inc(value)
        else:
            histograms[metric].labels(*labels).observe(value)

    where.register(_GaugeCollector(Gauges(app)))
    app.listen(listener(record))


class NotAcceptable(Exception):
    """An Accept header that can't be read."""


def scrape_function(app: MeasuredApp) -> Callable[[str], tuple[bytes, str]]:
    """Measures an app in a new registry; returns a function that answers a scrape.

    The function takes the scraper's Accept header, and returns the text and its content type. It
    raises NotAcceptable for a header that can't be read.
    """
    prometheus_client = _client()
    registry = prometheus_client.CollectorRegistry()
    observe_prometheus(app, registry=registry)

    def scrape(accept: str) -> tuple[bytes, str]:
        try:
            encode, content_type = prometheus_client.exposition.choose_encoder(accept)
        except (TypeError, ValueError) as error:
            raise NotAcceptable(accept) from error
        return encode(registry), content_type

    return scrape


def _client() -> ModuleType:
    try:
        import prometheus_client
        import prometheus_client.exposition
    except ImportError as missing:
        raise ConfigError(
            "Prometheus metrics need prometheus-client: pip install 'holdfast[prometheus]'"
        ) from missing
    return prometheus_client


class _GaugeCollector:
    """Reads the gauges at each scrape."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def describe(self) -> Iterable[Family]:
        """The gauges without values: to register the collector must not read the database."""
        return _families({})

    def collect(self) -> Iterable[Family]:
        return _families(self._gauges.read())


def _families(values: Values) -> Iterable[Family]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    for metric in catalogue.GAUGES:
        family = GaugeMetricFamily(metric.prometheus_name, metric.description, labels=metric.labels)
        for labels, value in values.get(metric, {}).items():
            family.add_metric(labels, value)
        yield family
