"""The page of metrics has a line for every metric, as it is declared."""

import pytest

from holdfast.metrics import catalogue
from holdfast.metrics.catalogue import Metric
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_every_metric_is_documented_as_it_is(metric: Metric) -> None:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    names = f"`{metric.prometheus_name}` | `{metric.opentelemetry_name}`"
    kind = f"{metric.kind} | `{metric.unit}` | {labels}"
    assert f"\n| {names} | {kind} | {metric.description} |\n" in PAGE


def test_no_metric_is_documented_that_is_not_there() -> None:
    assert PAGE.count("\n| `holdfast_") == len(catalogue.METRICS)
