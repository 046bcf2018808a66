"""`holdfast run`: applies events, stops cleanly, and reports faults."""

import re
import signal
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.command import Command, Place
from tests.support.postgres import Databases, wait_until
from tests.support.processes import ROOT

WAIT_SECONDS = 30.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_works_and_stops_cleanly(any_place: Place, number: signal.Signals) -> None:
    any_place.fresh = True
    any_place.credit(1, 2, 3)
    worker = any_place.work()
    any_place.wait_for(3)
    assert worker.send(number).wait() == 0
    stopped = any_place.statuses()
    assert {s["state"] for s in stopped.values()} == {"stopped"}
    assert {s["leader"] for s in stopped.values()} == {None}
    rows = any_place.contents()
    # The row type's columns, and the position of the last event.
    assert rows["balances"] == [("a", 6, 3)]
    assert rows["ledger"] == [("a", 1), ("a", 2), ("a", 3)]
    assert {row[5] for row in rows["holdfast_checkpoint"]} == {"stopped"}
    said = "\n".join(worker.err)
    assert f"running 2 projections on {any_place.url}: balances, ledger" in said
    assert said.count("projection stopped") == 2
    assert worker.out == []


EAGER = """
import os, signal
import bank
from holdfast import App

class Eager(App):
    def supervise(self, **options):
        os.kill(os.getpid(), signal.SIGTERM)  # Before the supervisor has started.
        return super().supervise(**options)

bank.app.__class__ = Eager
app = bank.app
"""


def test_a_signal_before_the_start_is_not_lost(place: Place) -> None:
    place.credit(1)
    (place.folder / "eager.py").write_text(EAGER)
    worker = place.start("run", "eager:app")
    assert worker.wait() == 0, worker.err
    assert worker.err[-1].endswith("INFO stopped")
    assert {s["state"] for s in place.statuses().values()} == {"stopped"}


def test_a_stop_commits_what_was_begun(any_place: Place, tmp_path: Path) -> None:
    """The handler returns after the signal: events up to its own are committed, and no other."""
    file = tmp_path / "hold"
    file.touch()
    any_place.credit(1)
    waited = f'{{"stream":"a","type":"Waited","data":{{"file":"{file}"}}}}\n'
    any_place.ok("journal", "import", "bank:app", "-", stdin=waited.encode())
    any_place.credit(2, 3)
    worker = any_place.start("run", "bank:app")
    wait_until(Path(f"{file}.reached").exists, WAIT_SECONDS, "the handler to be called")
    worker.send(signal.SIGTERM).wait_until_said("stopping")
    file.unlink()
    assert worker.wait() == 0
    ledger = any_place.statuses()["ledger"]
    assert (ledger["state"], ledger["position"]) == ("stopped", 2)
    assert any_place.contents()["ledger"] == [("a", 1)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(
    place: Place, tmp_path: Path, number: signal.Signals
) -> None:
    worker = _hang(place, tmp_path / "hold")
    worker.send(number).wait_until_said("stopping")
    assert worker.send(number).wait() == 128 + number


def test_a_handler_that_never_returns_does_not_keep_the_process_alive(
    place: Place, tmp_path: Path
) -> None:
    worker = _hang(place, tmp_path / "hold", "--stop-seconds", "0.2")
    assert worker.send(signal.SIGTERM).wait() == 1
    # SQLite has one writer: the other projection may be waiting for its turn.
    assert re.search(r"did not stop in 0.2 s: .*ledger", worker.err[-1])
    assert place.contents()["ledger"] == []


def test_a_fault_is_durable_and_stops_no_other_projection(any_place: Place) -> None:
    any_place.credit(5, -1, 7)
    worker = any_place.work()
    any_place.wait_for(1, "ledger", state="faulted")
    any_place.wait_for(3, "balances")
    any_place.credit(8)
    any_place.wait_for(4, "balances")
    assert worker.send(signal.SIGTERM).wait() == 3
    assert "ended; faulted: ledger" in worker.err[-1]

    ledger, balances = any_place.statuses()["ledger"], any_place.statuses()["balances"]
    assert (ledger["state"], ledger["position"], ledger["lag_events"]) == ("faulted", 1, 3)
    error = ledger["last_error"]
    assert (error["type"], error["position"]) == ("ValueError", 2)
    assert error["message"] == "a credit can't be negative\nit must be positive"
    assert error["event_type"] == "Credited"
    assert "in credited" in error["stacktrace"]
    assert (balances["state"], balances["last_error"]) == ("stopped", None)
    assert any_place.contents()["ledger"] == [("a", 5)]
    table = any_place.ok("status", "bank:app").out
    assert "ledger failed at position 2" in table
    assert "attempt 1" in table
    assert "ValueError: a credit can't be negative …" in table
    assert "in credited" not in table
    for command in ("status", "explain"):
        assert "in credited" in any_place.ok(command, "bank:app", "ledger").out
    only = any_place.ok("status", "--app", "bank:app", "ledger", "--json").json["projections"]
    assert [status["projection"] for status in only] == ["ledger"]
    assert "no projection 'ledgre'" in any_place.run("status", "bank:app", "ledgre").error


def test_the_process_ends_when_all_projections_have_faulted(any_place: Place) -> None:
    any_place.credit(1)
    place = any_place
    place.fresh = True
    place.write("only.py", ONE_FAULTY)
    worker = place.start("run", "only:app")
    assert worker.wait() == 3
    assert any("projection 'faulty' stopped at position 1" in line for line in worker.err)


DEPLOYED = [
    (page, arguments)
    for page in ("deploy-workers", "monitor")
    for arguments in re.findall(
        r"(?:ExecStart=\S+/holdfast |command: \[holdfast, )(run[^\]\n]*)",
        (ROOT / f"docs/howto/{page}.md").read_text(),
    )
]


def test_the_examples_of_deployments_are_found() -> None:
    assert len(DEPLOYED) == 3


@pytest.mark.parametrize(("page", "arguments"), DEPLOYED)
def test_one_bad_event_stops_no_other_projection_where_it_is_deployed(
    place: Place, page: str, arguments: str
) -> None:
    place.credit(-1, 2)
    words = re.sub('[,"]', "", arguments.replace("0.0.0.0:9100", "127.0.0.1:0")).split()
    worker = place.start(*words, HOLDFAST_APP="bank:app")
    place.wait_for(0, "ledger", state="faulted")
    place.wait_for(2, "balances")
    place.credit(3)
    place.wait_for(3, "balances")
    assert worker.send(signal.SIGTERM).wait() == 3


def test_a_worker_goes_on_with_a_faulted_projection_without_a_restart(any_place: Place) -> None:
    any_place.credit(5, -1, 7)
    worker = any_place.work()
    any_place.wait_for(1, "ledger", state="faulted")
    assert any_place.ok("retry", "bank:app", "ledger").out == "ledger is tried again\n"
    worker.wait_until_said("projection faulted: ", times=2)
    assert "had not stopped" in any_place.ok("retry", "bank:app", "balances").out
    explained = any_place.ok("explain", "bank:app", "ledger").out
    assert "holdfast retry ledger" in explained
    assert "Start one" not in explained
    any_place.ok("queue", "add", "bank:app", "ledger", "--position", "2")
    any_place.wait_for(3, "ledger")
    assert worker.send(signal.SIGTERM).wait() == 0


ALL_KINDS = """
import bank, holdfast
app = holdfast.App(bank.URL)
poll = holdfast.Poll(max_consecutive_failures=2, failure_backoff=holdfast.Backoff.constant(0.01))

for name, settings in {"log": {}, "shards": {"shards": 2}, "out": {"delivery": "outbox"}}.items():
    @app.projection(name=name, poll=poll, **settings)
    class Any(holdfast.Projection):
        @holdfast.on("*")
        def any(self, event, tx):
            pass
"""


@pytest.mark.parametrize("has_run", [True, False])
def test_the_process_ends_when_all_have_given_up(
    tmp_path: Path, postgres_url: str, postgres_server: Databases, has_run: bool
) -> None:
    place = Place(tmp_path / "place", postgres_url)
    place.write("kinds.py", ALL_KINDS)
    place.ok("migrate", "kinds:app")
    name = urlsplit(postgres_url).path.removeprefix("/")
    with psycopg.connect(postgres_server.admin_url(), autocommit=True) as admin:
        worker = None
        if has_run:
            worker = place.start("run", "kinds:app")
            worker.wait_until_said("projection started", times=4)
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        worker = worker or place.start("run", "kinds:app")
        assert worker.wait() == 3
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    assert "ended; faulted: log, shards, out" in worker.err[-1]


def test_exit_on_fault_ends_the_process_at_once(any_place: Place) -> None:
    any_place.credit(1, -1)
    worker = any_place.start("run", "bank:app", "--exit-on-fault")
    assert worker.wait() == 3
    assert {s["state"] for s in any_place.statuses().values()} == {"stopped", "faulted"}


def test_a_fixed_projection_goes_on_where_it_stopped(place: Place) -> None:
    place.credit(5, -1, 7)
    assert place.start("run", "bank:app", "--exit-on-fault").wait() == 3
    place.write("bank.py", (place.folder / "bank.py").read_text().replace("< 0", "< -100"))
    worker = place.work()
    place.wait_for(3)
    assert place.statuses()["ledger"]["last_error"] is None
    assert worker.send(signal.SIGTERM).wait() == 0
    assert place.contents()["ledger"] == [("a", -1), ("a", 5), ("a", 7)]


def test_an_app_without_projections_has_nothing_to_run(place: Place) -> None:
    place.write("empty.py", "import bank, holdfast\napp = holdfast.App(bank.URL)\n")
    assert "the app has no projections" in place.run("run", "empty:app").error


def test_the_apps_own_logging_is_respected(place: Place) -> None:
    text = (place.folder / "bank.py").read_text()
    place.write("bank.py", f"import logging\nlogging.basicConfig(format='OWN %(message)s')\n{text}")
    worker = place.work()
    worker.send(signal.SIGTERM).wait()
    assert all(line.startswith("OWN ") for line in worker.err)


ONE_FAULTY = """
import bank, holdfast
app = holdfast.App(bank.URL)

@app.projection
class Faulty(holdfast.Projection):
    @holdfast.on("*")
    def any(self, event, tx):
        raise RuntimeError("no")
"""


def _hang(place: Place, file: Path, *arguments: str) -> Command:
    """A worker whose ledger waits in its handler for ever."""
    file.touch()
    data = f'{{"file": "{file}"}}'
    place.ok("journal", "append", "bank:app", "a", "--type", "Waited", "--data", data)
    worker = place.start("run", "bank:app", *arguments)
    wait_until(Path(f"{file}.reached").exists, WAIT_SECONDS, "the handler to be called")
    return worker
