"""Metrics of an App for OpenTelemetry and Prometheus.

    core's signals ──▶ listener.py ──▶ counters, a histogram ─┐
                                                              ├─▶ opentelemetry.py, prometheus.py
    status, queue  ──▶ gauges.py   ──▶ gauges, when asked  ───┘

What there is to measure is declared once, in catalogue.py.
"""

from holdfast.metrics.opentelemetry import observe_opentelemetry
from holdfast.metrics.prometheus import observe_prometheus

__all__ = ["observe_opentelemetry", "observe_prometheus"]
