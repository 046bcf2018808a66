"""When a worker is alive, and when it is ready."""

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Event, NewEvent, Projection, ProjectionFaulted, Tx, on
from holdfast.cli.run import http
from holdfast.cli.run.http import Response, livez, readyz, serving
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


@pytest.fixture
def url(app: App) -> Iterator[str]:
    with serving(app, app.supervise(), ("127.0.0.1", 0)) as url:
        yield url


def ask(url: str, **headers: str) -> int:
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def connect(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    client = socket.create_connection((host, int(port)), timeout=60)
    client.sendall(b"GET /livez HTTP/1.1\r\nX-Slow: ")
    return client


def test_clients_that_are_slow_to_ask_shut_nobody_out(url: str) -> None:
    with ExitStack() as stack:
        for _ in range(2 * http.MAX_REQUESTS):
            stack.enter_context(connect(url))
        assert ask(f"{url}/livez") == 200


def test_a_request_has_a_deadline_as_a_whole(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http._Handler, "timeout", 0.2)
    with connect(url) as client, pytest.raises(ConnectionError):
        drip(client)


def drip(client: socket.socket) -> None:
    """Sends a byte in time, again and again, until the server has closed the connection."""
    while True:
        client.sendall(b"x")
        time.sleep(0.01)


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=x", "application/openmetrics-text;version=1.x"]
)
def test_an_odd_accept_header_is_not_acceptable(
    url: str, accept: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(f"{url}/metrics", Accept=accept) == 406
    assert caplog.records == []
    assert ask(f"{url}/metrics", Accept="application/openmetrics-text;version=1.0.0") == 200
    assert ask(f"{url}/livez", Accept=accept) == 200
