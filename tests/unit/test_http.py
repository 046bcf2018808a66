"""When a worker is alive, and when it is ready."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Event, NewEvent, Projection, ProjectionFaulted, Tx, on
from holdfast.cli.run.http import Response, livez, readyz
from holdfast.metrics import catalogue
from holdfast.metrics.gauges import Gauges
from holdfast.runtime.run.supervisor import Supervisor


class Picky(Projection):
    @on("Bad")
    def bad(self, event: Event[Any], tx: Tx) -> None:
        raise ValueError("no")


class Easy(Projection):
    @on("*")
    def any(self, event: Event[Any], tx: Tx) -> None:
        pass


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path}/bank.db") as app:
        app.projection(Picky)
        app.projection(Easy)
        yield app


def content(response: Response) -> tuple[int, dict[str, Any]]:
    return response.status, json.loads(response.body)


def ended(app: App, *, until: int) -> Supervisor:
    supervisor = app.supervise(until=until)
    supervisor.start()
    assert supervisor.join(30)
    return supervisor


def test_runners_that_have_ended_cleanly_are_alive(app: App) -> None:
    live = {"live": True, "crashed": [], "faulted": []}
    assert content(livez(app.supervise())) == (200, live)
    assert content(livez(ended(app, until=0))) == (200, live)


def test_a_worker_is_alive_until_all_projections_have_faulted(app: App) -> None:
    app.journal.append("a", [NewEvent({}, type="Bad")])
    supervisor = ended(app, until=1)
    assert content(livez(supervisor)) == (200, {"live": True, "crashed": [], "faulted": ["picky"]})
    alone = Supervisor(supervisor.faulted, wake=lambda: None)
    assert content(livez(alone)) == (503, {"live": False, "crashed": [], "faulted": ["picky"]})


def test_a_worker_with_a_crashed_runner_is_not_alive(app: App) -> None:
    supervisor = app.supervise()
    supervisor.workers[0].crash(MemoryError())
    dead = {"live": False, "crashed": ["picky"], "faulted": ["picky"]}
    assert content(livez(supervisor)) == (503, dead)


def test_a_fault_in_another_process_makes_it_unready(app: App, tmp_path: Path) -> None:
    gauges, supervisor = Gauges(app), app.supervise()
    with App(f"sqlite:///{tmp_path}/bank.db") as other:
        other.projection(Picky)
        other.projection(name="not_ours")(Picky)
        other.journal.append("a", [NewEvent({}, type="Bad")])
        with pytest.raises(ProjectionFaulted):
            other.catch_up()
    not_ready = {"ready": False, "database": "ok", "faulted": ["picky"]}
    assert content(readyz(gauges, supervisor)) == (503, not_ready)


def test_a_crash_that_the_database_does_not_know_makes_it_unready(app: App) -> None:
    supervisor = app.supervise()
    assert content(readyz(Gauges(app), supervisor))[0] == 200
    supervisor.workers[1].crash(MemoryError())
    not_ready = {"ready": False, "database": "ok", "faulted": ["easy"]}
    assert content(readyz(Gauges(app), supervisor)) == (503, not_ready)


def test_a_pause_does_not_hide_a_fault(app: App) -> None:
    supervisor = app.supervise()
    app.pause("easy", by="anna")
    assert content(readyz(Gauges(app), supervisor))[0] == 200
    app.resume("easy", by="anna")
    app.journal.append("a", [NewEvent({}, type="Bad")])
    with pytest.raises(ProjectionFaulted):
        app.catch_up()
    app.pause("picky", by="anna")
    not_ready = {"ready": False, "database": "ok", "faulted": ["picky"]}
    assert content(readyz(Gauges(app), supervisor)) == (503, not_ready)
    states = Gauges(app).read()[catalogue.STATE]
    assert {state for (name, _, state), value in states.items() if name == "picky" and value} == {
        "paused",
        "faulted",
    }
    app.reset("picky")
    assert content(readyz(Gauges(app), supervisor))[0] == 200
