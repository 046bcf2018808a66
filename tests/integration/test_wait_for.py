"""Waiting for a projection: for a stream, beside faults, and after the journal was replaced."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast import (
    App,
    ConfigError,
    Event,
    Policy,
    Projection,
    ProjectionFaulted,
    Tx,
    WaitTimeout,
    on,
)
from tests.contracts.samples import Counted, execute

SETTINGS: list[dict[str, Any]] = [{}, {"shards": 2}, {"delivery": "outbox", "concurrency": 2}]


class Gate:
    """A projection that holds up, or fails, the events of one stream."""

    def __init__(self, app: App, **settings: Any) -> None:
        self.app, self.is_open, self.fails = app, threading.Event(), False

        @app.projection(name="gate", **settings)
        class _(Projection):
            @on(Counted)
            def counted(_, event: Event[Counted], tx: Tx) -> None:
                if event.stream == "slow":
                    if self.fails:
                        raise ValueError("no")
                    assert self.is_open.wait(30)

    def append(self, stream: str) -> int:
        return self.app.journal.append(stream, [Counted(1)]).position


@pytest.fixture
def app(quick_url: str) -> Iterator[App]:
    with closing(App(quick_url)) as app:
        yield app


@pytest.mark.parametrize(
    ("quick_url", "settings"),
    [
        ("emptied_postgres_url", SETTINGS[1]),  # SQLite has one writer, so that shards wait.
        ("emptied_postgres_url", SETTINGS[2]),
        ("sqlite_url", SETTINGS[2]),
    ],
    indirect=["quick_url"],
)
def test_a_stream_is_not_held_up_by_others(app: App, settings: dict[str, Any]) -> None:
    gate = Gate(app, **settings)
    gate.append("slow")
    position = gate.append("fast")  # In the other shard.
    try:
        with app.running():
            app.wait_for("gate", stream="fast")
            app.wait_for("gate", stream="that is not there")
            with pytest.raises(WaitTimeout):
                app.wait_for("gate", stream="slow", timeout_seconds=0.01)
            with pytest.raises(WaitTimeout):
                app.wait_for("gate", position, timeout_seconds=0.01)
            gate.is_open.set()
            app.wait_for("gate", stream="slow")
    finally:
        gate.is_open.set()


@pytest.mark.parametrize("settings", SETTINGS, ids=["log", "shards", "outbox"])
def test_the_fault_of_the_run_before_is_not_told_after_a_start(
    app: App, settings: dict[str, Any]
) -> None:
    gate = Gate(app, policy=Policy.fatal(), **settings)
    gate.fails = True
    position = gate.append("slow")
    with app.running(), pytest.raises(ProjectionFaulted):
        app.wait_for("gate", position)
    with pytest.raises(ProjectionFaulted):
        app.wait_for("gate", position)
    gate.fails = False
    gate.is_open.set()
    with app.running():
        app.wait_for("gate", position)
        app.wait_for("gate", stream="slow")


@pytest.mark.parametrize("is_shorter", [True, False])
def test_an_earlier_journal_is_noticed(app: App, is_shorter: bool) -> None:
    gate = Gate(app)
    for _ in range(3):
        position = gate.append("fast")
    app.catch_up()
    app.wait_for("gate", position)
    execute(app, "DELETE FROM holdfast_event")
    if not is_shorter:
        for _ in range(5):
            gate.append("fast")
    with pytest.raises(ProjectionFaulted, match="holdfast reset gate"):
        app.wait_for("gate", 1)
    app.reset("gate")
    with app.running():
        app.wait_for("gate", app.journal.head())


def test_either_a_position_or_a_stream(app: App) -> None:
    Gate(app)
    for wrong in ({}, {"position": 1, "stream": "a"}):
        with pytest.raises(ConfigError, match="a position, or else a stream"):
            app.wait_for("gate", **wrong)  # type: ignore[arg-type]
