"""`holdfast status`: projections that run, have run or never ran."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.command import Place
from tests.support.postgres import Databases, wait_until

WAIT_SECONDS = 30.0
FIELDS = {
    "closed_lanes",
    "delivery",
    "epoch",
    "events_per_second",
    "events_processed",
    "feed",
    "head",
    "is_faulted",
    "is_head_known",
    "lag_events",
    "lag_seconds",
    "last_error",
    "last_event_id",
    "last_event_type",
    "last_processed_at",
    "leader",
    "needs_reset",
    "mode",
    "overrides",
    "paused_at",
    "paused_by",
    "paused_note",
    "position",
    "projection",
    "queued_events",
    "registered",
    "state",
    "stuck_events",
    "stuck_seconds",
    "waiting_for",
    "waiting_until",
}


def test_lists_what_never_ran(any_place: Place) -> None:
    any_place.credit(1)
    found = any_place.statuses()
    assert list(found) == ["balances", "ledger"]
    for status in found.values():
        assert status.keys() == FIELDS
        assert (status["state"], status["epoch"], status["position"]) == ("stopped", 0, 0)
        assert (status["lag_events"], status["head"]) == (1, 1)
        assert status["lag_seconds"] > 0
    assert any_place.ok("status", "bank:app").out.count("never ran") == 2


def test_shows_leaders_and_positions(any_place: Place) -> None:
    any_place.credit(1)
    worker = any_place.work()
    any_place.wait_for(1)
    for status in any_place.statuses().values():
        assert status["state"] == "running"
        assert status["leader"].endswith(f":{worker.pid}")
        assert (status["lag_events"], status["lag_seconds"]) == (0, 0.0)
        assert status["events_processed"] == 1
        assert status["last_event_type"] == "Credited"
    table = any_place.ok("status", "bank:app").out
    assert table.count("running") == 2
    worker.close()
    assert {s["state"] for s in any_place.statuses().values()} == {"stopped"}
    assert {s["leader"] for s in any_place.statuses().values()} == {None}


def test_shows_a_projection_that_the_app_no_longer_has(place: Place) -> None:
    place.work().close()
    place.write("empty.py", "import bank, holdfast\napp = holdfast.App(bank.URL)\n")
    found = place.ok("status", "empty:app", "--json").json["projections"]
    assert [(s["projection"], s["registered"]) for s in found] == [
        ("balances", False),
        ("ledger", False),
    ]
    assert place.ok("status", "empty:app").out.count("(not in the app)") == 2


def test_an_app_with_nothing_to_show(place: Place) -> None:
    place.write("empty.py", "import bank, holdfast\napp = holdfast.App(bank.URL)\n")
    nothing = {"projections": [], "has_tables": False}
    assert place.ok("status", "empty:app", "--json").json == nothing
    assert "no projections" in place.ok("status", "empty:app").out


def test_a_database_without_tables_stays_so(any_place: Place) -> None:
    for _ in range(2):
        table = any_place.ok("status", "bank:app").out
        assert table.count("never ran") == 2
        assert "has no holdfast tables yet" in table
    for command in (["queue", "list"], ["journal", "tail"], ["audit"], ["outbox", "report"]):
        any_place.ok(*command, "bank:app")
    assert "no holdfast tables" in any_place.ok("explain", "bank:app", "ledger").out
    any_place.ok("migrate", "bank:app")
    assert "has no holdfast tables" not in any_place.ok("status", "bank:app").out


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_watch_on_a_pipe_goes_on_until_ctrl_c(place: Place, arguments: list[str]) -> None:
    watch = place.start("status", "bank:app", "--watch", "--interval", "0.1", *arguments)
    watch.wait_until_said("balances", times=2)
    place.credit(1)
    watch.wait_until_said('"head":1' if arguments else "  1  ", times=2)
    assert watch.send(signal.SIGINT).wait() == 0
    assert watch.err == []
    if arguments:
        assert all(set(json.loads(line)) == {"projections", "has_tables"} for line in watch.out)


def test_watch_outlives_a_database_that_is_away(
    tmp_path: Path, postgres_url: str, postgres_server: Databases
) -> None:
    place = Place(tmp_path / "place", postgres_url)
    watch = place.start("status", "bank:app", "--watch", "--interval", "0.1", "--json")
    watch.wait_until_said('"projections"')
    name = urlsplit(postgres_url).path.removeprefix("/")
    with psycopg.connect(postgres_server.admin_url(), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        watch.wait_until_said('{"error":')
        seen = len(watch.out)
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    wait_until(
        lambda: any('"projections"' in line for line in watch.out[seen:]),
        WAIT_SECONDS,
        "the database to be back",
    )
    assert watch.send(signal.SIGINT).wait() == 0


def test_watch_on_a_terminal_draws_one_table_over_itself(place: Place) -> None:
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "status", "bank:app", "--watch", "--interval", "0.1"],
        cwd=place.folder,
        env={**os.environ, "BANK_URL": place.url, "TERM": "xterm", "COLUMNS": "100"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    drawn = b""
    try:
        while drawn.count(b"never ran") < 6:
            drawn += os.read(outer, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        os.close(outer)
    assert b"\x1b[1A" in drawn  # The cursor goes up, to draw over what is there.
