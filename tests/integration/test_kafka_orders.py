"""Whatever order a topic has, and whatever fails: each stream is applied once and in order."""

from collections.abc import Sequence
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from holdfast import App, Projection, on
from holdfast.runtime.store.queue_items import QueueSelection
from tests.support.bank_topic import Credited, Topic, rows
from tests.support.kafka_mock import MockCluster

STREAMS = 3
VERSIONS = 6

Step = tuple[int, int]
"""A stream and a version that is written."""


History = tuple[list[list[Step]], set[Step]]
"""What is written between one run and the next, and what fails."""


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Histories in which every event is written at least once."""
    every = [(stream, version) for stream in range(STREAMS) for version in range(1, VERSIONS + 1)]
    again = draw(st.lists(st.sampled_from(every), max_size=12))
    order = draw(st.permutations(every + again))
    ends = draw(st.lists(st.integers(0, len(order)), max_size=4).map(sorted))
    parts = [order[a:b] for a, b in zip([0, *ends], [*ends, len(order)], strict=True)]
    poison = draw(st.sets(st.sampled_from(every), max_size=3))
    return parts, poison


class Log(Projection):
    """Writes down what it is given, unless that fails."""

    tables: ClassVar = {"log": "CREATE TABLE log (n integer PRIMARY KEY, stream text, version int)"}
    failing: ClassVar[set[Step]] = set()

    @on(Credited)
    def credited(self, event: Any, tx: Any) -> None:
        tx.execute("INSERT INTO log (stream, version) VALUES (?, ?)", (event.stream, event.version))
        if (int(event.stream), event.version) in self.failing:
            raise ValueError("poison")


@given(histories())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_stream_is_applied_once_and_in_order(
    mock_kafka: MockCluster, history: History
) -> None:
    play(mock_kafka, *history)


@pytest.mark.soak
@given(histories())
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_same_for_longer(mock_kafka: MockCluster, history: History) -> None:
    play(mock_kafka, *history)


def play(mock_kafka: MockCluster, parts: list[list[Step]], poison: set[Step]) -> None:
    """Writes and applies a history part by part, mends what fails, and looks at the result."""
    topic = Topic(mock_kafka.bootstrap, mock_kafka.create_topic(partitions=1))
    Log.failing = poison
    with App("sqlite:///:memory:") as app:
        app.projection(source=topic.source(gap_seconds=0.0))(Log)
        for part in parts:
            for stream, version in part:
                topic.credit(str(stream), version)
            topic.flush()
            app.catch_up()
            check(applied(app), poison)
        Log.failing = set()
        for _ in range(STREAMS * VERSIONS):
            if not app.queue.list(QueueSelection(status="dead")):
                break
            app.queue.requeue(QueueSelection(status="dead"), by="ann")
            app.catch_up()
        assert app.queue.list() == []
        assert applied(app) == {str(s): list(range(1, VERSIONS + 1)) for s in range(STREAMS)}


def applied(app: App) -> dict[str, list[int]]:
    """The versions of each stream, in the order in which they were applied."""
    found: dict[str, list[int]] = {}
    for _, stream, version in sorted(rows(app, "log")):
        found.setdefault(stream, []).append(version)
    return found


def check(found: dict[str, list[int]], poison: set[Step]) -> None:
    """No stream has a gap, a doubling, or anything at or behind what fails."""
    for stream, versions in found.items():
        assert versions == list(range(1, len(versions) + 1))
        failing = [version for number, version in poison if str(number) == stream]
        assert len(versions) < min(failing, default=VERSIONS + 1)


def test_the_history_above_can_be_told(mock_kafka: MockCluster) -> None:
    """The check finds what it is meant to find."""
    wrong: Sequence[dict[str, list[int]]] = ({"0": [1, 3]}, {"0": [1, 1]}, {"0": [2, 1]})
    for found in wrong:
        try:
            check(found, set())
        except AssertionError:
            continue
        raise AssertionError(f"{found} passed")
