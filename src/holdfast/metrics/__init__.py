"""Metrics of an App for OpenTelemetry and Prometheus.

catalogue      every metric, declared once
listener       what each signal adds to the counters and the histogram
gauges         the gauges, read from the database on demand
opentelemetry  the metrics in a meter of OpenTelemetry
prometheus     the metrics in a registry of Prometheus
"""

from holdfast.metrics.opentelemetry import observe_opentelemetry
from holdfast.metrics.prometheus import observe_prometheus

__all__ = ["observe_opentelemetry", "observe_prometheus"]
