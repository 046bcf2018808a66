"""`holdfast run --http`: metrics and health of a real worker, over real sockets."""

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.command import Command, Place
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0
SERVING = re.compile(r"serving /metrics, /livez and /readyz on (http://\S+)")


@dataclass(frozen=True)
class Response:
    status: int
    body: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Worker:
    """A worker that serves on a free port."""

    def __init__(self, command: Command) -> None:
        self.command = command
        (self.url,) = [m[1] for line in self.command.err if (m := SERVING.search(line))]

    def ask(self, path: str, *, method: str = "GET") -> Response:
        request = urllib.request.Request(self.url + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as found:
                return Response(found.status, found.read().decode(), dict(found.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, error.read().decode(), dict(error.headers))

    def metrics(self) -> dict[str, float]:
        """Every sample, by its name and labels as they are written."""
        found = self.ask("/metrics")
        assert found.status == 200
        lines = [line for line in found.body.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def stop(self) -> int:
        return self.command.send(signal.SIGTERM).wait()


def of(name: str, projection: str, **labels: str) -> str:
    """A sample's name with its labels, as the text format has them: sorted."""
    named = {"feed": "journal", "projection": projection, **labels}
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in named.items()) + "}"


def test_metrics_and_health_of_a_worker(any_place: Place) -> None:
    any_place.credit(1, 2, 3)
    worker = Worker(any_place.work("--http", "127.0.0.1:0"))
    any_place.wait_for(3)
    expected = {
        of("holdfast_events_processed_total", "balances"): 3,
        of("holdfast_events_processed_total", "ledger"): 3,
        of("holdfast_faults_total", "ledger"): 0,
        of("holdfast_lag_events", "ledger"): 0,
        of("holdfast_runner_state", "ledger", state="running"): 1,
        of("holdfast_runner_state", "ledger", state="faulted"): 0,
        of("holdfast_queue_items", "ledger", status="dead"): 0,
    }
    wait_until(lambda: expected.items() <= worker.metrics().items(), WAIT_SECONDS, f"{expected}")
    assert worker.metrics()[of("holdfast_batch_duration_seconds_count", "ledger")] >= 1
    assert worker.metrics()[of("holdfast_batch_duration_seconds_sum", "ledger")] > 0
    assert worker.ask("/livez").json == {"live": True, "crashed": [], "faulted": []}
    ready = worker.ask("/readyz")
    assert (ready.status, ready.json) == (200, {"ready": True, "database": "ok", "faulted": []})
    assert worker.stop() == 0


def test_a_fault_makes_it_not_ready(any_place: Place) -> None:
    worker = Worker(any_place.work("--http", "127.0.0.1:0"))
    wait_until(lambda: worker.ask("/readyz").status == 200, WAIT_SECONDS, "readiness")
    any_place.credit(5, -1, 7)
    wait_until(lambda: worker.ask("/readyz").status == 503, WAIT_SECONDS, "no readiness")
    found = worker.ask("/readyz")
    assert found.json == {"ready": False, "database": "ok", "faulted": ["ledger"]}
    assert found.headers["Content-Type"] == "application/json"
    # The other projection runs, so the worker is alive.
    live = worker.ask("/livez")
    assert (live.status, live.json["faulted"]) == (200, ["ledger"])
    expected = {
        of("holdfast_faults_total", "ledger"): 1,
        of("holdfast_attempts_failed_total", "ledger"): 1,
        of("holdfast_lag_events", "ledger"): 2,
        of("holdfast_runner_state", "ledger", state="faulted"): 1,
        of("holdfast_events_processed_total", "ledger"): 1,
        of("holdfast_events_processed_total", "balances"): 3,
    }
    wait_until(lambda: expected.items() <= worker.metrics().items(), WAIT_SECONDS, f"{expected}")
    assert worker.metrics()[of("holdfast_lag_time_seconds", "ledger")] > 0
    assert worker.stop() == 3


def test_a_database_that_is_away(place: Place) -> None:
    """Nothing listens on the port. The responses name neither user nor password."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql://anna:hunter2@127.0.0.1:{port}/bank"
    command = place.start("run", "bank:app", "--http", "127.0.0.1:0", BANK_URL=url)
    command.wait_until_said("store unavailable", times=2)  # For each of the projections.
    worker = Worker(command)
    found = worker.ask("/readyz")
    assert found.status == 503
    assert found.json == {"ready": False, "database": "does not answer", "faulted": []}
    assert worker.ask("/livez").status == 200
    assert worker.metrics()[of("holdfast_poll_failures_total", "ledger")] >= 1
    seen = "".join(worker.ask(path).body for path in ("/metrics", "/readyz", "/livez", "/x"))
    assert "anna" not in seen
    assert "hunter2" not in seen + "".join(command.err)


def test_paths_and_methods(place: Place) -> None:
    worker = Worker(place.work("--http", ":0"))
    assert worker.url.startswith("http://127.0.0.1:")
    assert not worker.url.endswith(":0")
    for path in ("/metrics", "/livez", "/readyz"):
        head = worker.ask(path, method="HEAD")
        assert (head.status, head.body) == (200, "")
        assert int(head.headers["Content-Length"]) > 0
        assert worker.ask(path + "?x=1").status == 200
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"):
            refused = worker.ask(path, method=method)
            assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    assert worker.ask("/metrics").headers["Content-Type"].startswith("text/plain; version=")
    assert worker.ask("/metrics").headers["Server"].strip() == "holdfast"
    for path in ("/", "/metrics/", "/../etc/passwd", "/%00"):
        assert worker.ask(path).status == 404
    assert worker.stop() == 0


def test_without_the_extra_metrics_say_what_to_install(place: Place) -> None:
    place.fresh = True
    place.write("prometheus_client.py", "raise ModuleNotFoundError('not installed')\n")
    worker = Worker(place.work("--http", "0"))
    found = worker.ask("/metrics")
    assert found.status == 501
    assert "pip install 'holdfast[prometheus]'" in found.body
    assert worker.ask("/livez").status == 200
    assert worker.ask("/readyz").status == 200


@pytest.mark.parametrize(
    "value", ["", "x", ":", "host", "host:", "1.2.3.4:x", "1:2:3", "::1", "99999", "-1", "a b:1"]
)
def test_a_bad_address_is_refused(place: Place, value: str) -> None:
    done = place.run("run", "bank:app", f"--http={value}")
    assert done.code == 2
    assert f"{value!r} is not an address; give HOST:PORT" in " ".join(done.err.split())


def test_an_address_that_is_taken_is_refused(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = place.run("run", "bank:app", "--http", address).err
    assert f"holdfast: can't listen on {address}: Address already in use" in error
