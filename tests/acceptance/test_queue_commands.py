"""`holdfast queue`, `audit`, `pause`, `resume`, `rewind` and `explain`."""

import getpass
import json
import os
import pty
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import App, NewEvent, QueueSelection
from tests.support.command import Command, Place
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0
PARKING = ("@app.projection\nclass Ledger", "@app.projection(policy=POLICY)\nclass Ledger")


def module(policy: str, *, replayable: bool = False) -> str:
    """The bank's module, whose ledger has a policy."""
    text = (Path(__file__).parent / "bank_module.py").read_text()
    text = text.replace("import App, ", "import App, Backoff, Breaker, Park, Policy, Retry, Skip, ")
    text = text.replace(*PARKING).replace("POLICY", policy)
    if replayable:
        name = "class Ledger(Projection):"
        text = text.replace(name, f"{name}\n    replayable = True")
    return text


def credit(place: Place, stream: str, *amounts: int) -> None:
    """Appends a Credited event to a stream for each amount."""
    events = [
        {
            "stream": stream,
            "type": "Credited",
            "data": {"amount": amount},
            "metadata": {"by": "x"},
            "id": str(uuid4()),
        }
        for amount in amounts
    ]
    lines = "".join(f"{json.dumps(event)}\n" for event in events)
    place.ok("journal", "import", "bank:app", "-", stdin=lines.encode())


def parked(place: Place) -> Command:
    """Lanes a and b are closed, each with an event behind its head; lane c is open."""
    place.write("bank.py", module("Policy(on_error=Park())"))
    credit(place, "a", 1, -2, 3)
    credit(place, "b", 4, -5, 6)
    credit(place, "c", 7)
    worker = place.work()
    place.wait_for(7)
    return worker


def fix(place: Place) -> None:
    """The ledger accepts negative amounts."""
    path = place.folder / "bank.py"
    path.write_text(path.read_text().replace("event.data.amount < 0", "False"))


def explain(place: Place, projection: str = "ledger") -> dict[str, dict[str, Any]]:
    found = place.ok("explain", "bank:app", projection, "--json").json
    assert found["projection"] == projection
    return {reason["kind"]: reason for reason in found["reasons"]}


def items(place: Place, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = place.ok("queue", "list", "bank:app", "--json", *arguments).json[
        "items"
    ]
    return found


@pytest.fixture
def closed(any_place: Place) -> Place:
    """Lanes a and b are closed, and no worker runs."""
    parked(any_place).close()
    return any_place


# Looking


def test_an_empty_queue(place: Place) -> None:
    assert place.ok("queue", "list", "bank:app").out == "the queue is empty\n"
    assert place.ok("queue", "list", "bank:app", "--lane", "x").out == "no item matches\n"
    assert place.ok("queue", "list", "bank:app", "--json").json == {"items": []}
    assert place.ok("queue", "stats", "bank:app").out == "the queue is empty\n"
    assert place.ok("queue", "stats", "bank:app", "--json").json == {"counts": []}
    assert place.ok("audit", "bank:app").out == "nobody has changed anything yet\n"


def test_list_show_and_stats(closed: Place) -> None:
    table = closed.ok("queue", "list", "bank:app").out
    head = "id projection lane status attempts event type error age next attempt"
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert head in lines
    assert any(line.startswith("1 ledger a dead 1 Credited ValueError: a credit") for line in lines)
    assert any(line.startswith("2 ledger a pending 0 Credited") for line in lines)
    shown = closed.ok("queue", "show", "bank:app", "1").out
    assert "item 1 of ledger, lane a: dead" in shown
    assert '  {\n    "amount": -2\n  }' in shown
    assert '"by": "x"' in shown
    assert 'raise ValueError("a credit' in shown
    assert shown.count("ValueError: a credit can't be negative") == 2
    full = closed.ok("queue", "show", "bank:app", "1", "--json").json
    assert (full["data"], full["metadata"]["by"]) == ({"amount": -2}, "x")
    assert [attempt["error_type"] for attempt in full["history"]] == ["ValueError"]
    counts = closed.ok("queue", "stats", "bank:app", "--json").json["counts"]
    assert [(c["status"], c["error_type"], c["items"]) for c in counts] == [
        ("dead", "ValueError", 2),
        ("pending", None, 2),
    ]
    assert "ValueError" in closed.ok("queue", "stats", "bank:app").out


def test_filters(closed: Place) -> None:
    for arguments, found in (
        ([], [1, 2, 3, 4]),
        (["--projection", "ledger"], [1, 2, 3, 4]),
        (["--projection", "balances"], []),
        (["--lane", "b"], [3, 4]),
        (["--status", "dead"], [1, 3]),
        (["--error-type", "ValueError", "--lane", "b"], [3]),
        (["--event-type", "Credited", "--limit", "1"], [1]),
        (["--older-than", "2h"], []),
    ):
        assert [item["id"] for item in items(closed, *arguments)] == found, arguments
    assert "the 2 oldest" in closed.ok("queue", "list", "bank:app", "--limit", "2").out
    wrong = closed.run("queue", "list", "bank:app", "--older-than", "2y")
    assert (wrong.code, "30s, 5m, 2h or 7d" in wrong.err) == (2, True)


# Changing


def test_requeue_drains_a_lane(any_place: Place) -> None:
    worker = parked(any_place)
    worker.close()
    fix(any_place)
    any_place.work()
    done = any_place.ok(
        "queue", "requeue", "bank:app", "1", "--yes", "--by", "ada", "--note", "mended", "--json"
    ).json
    assert (done["action"], done["dry_run"], done["left_alone"]) == ("requeue", False, [])
    assert [item["id"] for item in done["items"]] == [1]
    wait_until(lambda: len(items(any_place)) == 2, WAIT_SECONDS, "lane a to be drained")
    assert any_place.contents()["ledger"] == [("a", -2), ("a", 1), ("a", 3), ("b", 4), ("c", 7)]
    (change,) = any_place.ok("audit", "bank:app", "--json").json["changes"]
    assert (change["actor"], change["action"], change["note"]) == ("ada", "requeue", "mended")
    assert change["subject"] == {"items": [1]}
    assert change["projection"] == "ledger"
    line = " ".join(any_place.ok("audit", "bank:app").out.split())
    assert "ada requeue ledger items 1 mended" in line


def test_retry_tries_an_item_once_more(any_place: Place) -> None:
    parked(any_place)
    done = any_place.ok("queue", "retry", "bank:app", "1", "--yes", "--note", "again")
    assert done.out == "marked for a retry 1 item\n"

    def first() -> dict[str, Any]:
        found: dict[str, Any] = any_place.ok("queue", "show", "bank:app", "1", "--json").json
        return found

    wait_until(lambda: first()["attempts"] == 2, WAIT_SECONDS, "the second attempt")
    assert (first()["status"], first()["note"]) == ("dead", "again")
    (change,) = any_place.ok("audit", "bank:app", "--json").json["changes"]
    assert (change["action"], change["note"]) == ("retry", "again")
    left = any_place.run("queue", "retry", "bank:app", "2", "--yes")
    assert "nothing was marked for a retry: item 2 is pending" in left.error


@pytest.mark.parametrize(
    "which", [["1", "3"], ["--projection", "ledger"], ["--error-type", "ValueError"]]
)
def test_a_dry_run_says_what_a_change_would_touch(closed: Place, which: list[str]) -> None:
    before = closed.contents()
    shown = closed.ok("queue", "requeue", "bank:app", *which, "--dry-run").out
    assert shown.startswith("would have requeued 2 items:\n  1  ledger  a  dead  Credited")
    preview = closed.ok("queue", "requeue", "bank:app", *which, "--dry-run", "--json").json
    assert ([item["id"] for item in preview["items"]], preview["dry_run"]) == ([1, 3], True)
    assert closed.contents() == before


def test_a_limit_takes_the_oldest_and_says_so(closed: Place) -> None:
    done = closed.ok("queue", "requeue", "bank:app", "--status", "dead", "--limit", "1", "-y").out
    assert done.startswith("requeued 1 item\nThese were the 1 oldest")
    assert [(i["id"], i["status"]) for i in items(closed, "--lane", "a")] == [
        (1, "pending"),
        (2, "pending"),
    ]
    assert [i["status"] for i in items(closed, "--lane", "b")] == ["dead", "pending"]


def test_without_a_terminal_it_refuses_to_ask(closed: Place) -> None:
    before = closed.contents()
    for command in (["requeue", "1"], ["resolve", "1", "--note", "x"]):
        refused = closed.run("queue", command[0], "bank:app", *command[1:], stdin=b"y\n")
        assert refused.code == 1
        assert "1 item on" in refused.err
        assert "1  ledger  a  dead" in refused.err
        assert "add --yes" in refused.err
    assert closed.contents() == before


@pytest.mark.parametrize(("answer", "done"), [(b"n\n", False), (b"y\n", True)])
def test_on_a_terminal_it_asks(place: Place, answer: bytes, done: bool) -> None:
    parked(place).close()
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "queue", "requeue", "bank:app", "--lane", "a"],
        cwd=place.folder,
        env={**os.environ, "BANK_URL": place.url},
        stdin=inner,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(inner)
    os.write(outer, answer)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    os.close(outer)
    assert b"This requeues 1 item on" in err
    assert process.returncode == (0 if done else 1)
    assert out == (b"requeued 1 item\n" if done else b"")
    assert items(place)[0]["status"] == ("pending" if done else "dead")
    if done:
        (change,) = place.ok("audit", "bank:app", "--json").json["changes"]
        assert change["actor"] == getpass.getuser()


def test_refusals_say_why_and_what_to_do(closed: Place) -> None:
    def refused(*arguments: str) -> str:
        return closed.run("queue", arguments[0], "bank:app", *arguments[1:], "--yes").error

    before = closed.contents()
    assert "item 2 is pending: it waits behind item 1 (dead)" in refused("requeue", "2")
    assert "an item that still waits is never deleted" in refused("purge", "1")
    assert "no item matches" in refused("requeue", "--lane", "c")
    assert "no item 99" in refused("resolve", "99", "--note", "x")
    assert closed.contents() == before
    for arguments, text in (
        (["requeue"], "which items?"),
        (["requeue", "1", "--lane", "a"], "not both"),
        (["requeue", "1", "x"], "'x' is not an id"),
        (["resolve", "1"], "--note"),
        (["show", "one"], "'one' is not an id"),
    ):
        wrong = closed.run("queue", arguments[0], "bank:app", *arguments[1:])
        assert (wrong.code, text in wrong.err) == (2, True), wrong
    assert closed.contents() == before


def test_resolve_and_purge(closed: Place) -> None:
    done = closed.ok("queue", "resolve", "bank:app", "1", "2", "--note", "refunded", "--yes")
    assert done.out == "resolved 2 items\n"
    shown = closed.ok("queue", "show", "bank:app", "1").out
    assert f"by {getpass.getuser()}" in shown
    assert "refunded" in shown
    again = closed.run("queue", "resolve", "bank:app", "1", "--note", "x", "--yes").error
    assert "it is closed, and can't be changed any more" in again
    assert "it is closed" in closed.run("queue", "requeue", "bank:app", "1", "--yes").error
    some = closed.ok("queue", "requeue", "bank:app", "1", "3", "--yes").out
    assert some.startswith("requeued 1 item\nleft alone: item 1 is resolved")
    closed.work().close()
    assert ("a", 3) not in closed.contents()["ledger"]
    assert closed.ok("queue", "purge", "bank:app", "--status", "resolved", "-y").out == (
        "deleted 2 items\n"
    )
    nothing = closed.ok("queue", "purge", "bank:app", "--status", "resolved", "-y")
    assert nothing.out == "deleted 0 items\n"


def test_add_lets_a_stopped_projection_go_on(any_place: Place) -> None:
    credit(any_place, "a", 1, -2, 3)
    credit(any_place, "b", 4)
    any_place.work().wait_until_said("projection faulted")
    reasons = explain(any_place)
    fault = reasons["faulted"]
    assert fault["fields"]["position"] == 2
    assert (fault["fields"]["event_type"], fault["fields"]["needs_reset"]) == ("Credited", False)
    assert any("holdfast queue add ledger --position 2" in line for line in fault["advice"])
    done = any_place.ok("queue", "add", "bank:app", "ledger", "--position", "2", "--json").json
    assert (done["status"], done["position"]) == ("dead", 2)
    again = any_place.run("queue", "add", "bank:app", "ledger", "--position", "2").error
    assert "has passed position 2" in again
    assert (
        "no projection 'x'"
        in any_place.run("queue", "add", "bank:app", "x", "--position", "2").error
    )
    any_place.close()
    any_place.work()
    any_place.wait_for(4)
    assert any_place.contents()["ledger"] == [("a", 1), ("b", 4)]


def test_the_head_of_a_lane_is_named_after_a_thousand_resolved_items(place: Place) -> None:
    place.write("bank.py", module("Policy(on_error=Park())"))
    credit(place, "a", -1, *range(1, 1_002))
    worker = place.work()
    place.wait_for(1_002)
    worker.close()
    limit = ("--limit", "1000", "--note", "x", "--yes")
    place.ok("queue", "resolve", "bank:app", "--lane", "a", *limit)
    refused = place.run("queue", "requeue", "bank:app", "1002", "--yes").error
    assert "item 1002 is pending: it waits behind item 1001 (pending)" in refused
    refused = place.run("queue", "requeue", "bank:app", "1001", "--yes").error
    assert "item 1001 is pending: it has not failed, and is tried as soon as" in refused


@pytest.mark.parametrize("is_table", [False, True])
def test_where_a_rewind_would_be_refused_the_advice_is_a_reset(
    place: Place, is_table: bool
) -> None:
    place.write("bank.py", module("Policy(on_error=Skip())"))
    credit(place, "a", -1)
    worker = place.work()
    place.wait_for(1)
    worker.close()
    if is_table:
        above = module("Policy(on_error=Skip())").partition("class Ledger")[0]
        place.write("bank.py", f"{above}class Ledger(Balances):\n    pass\n")
    said = place.run("queue", "requeue", "bank:app", "1", "--yes").error
    assert "build the projection again with holdfast reset ledger" in said
    assert "rewind" not in said


# Pause and rewind


def test_pause_and_resume(any_place: Place) -> None:
    worker = any_place.work()
    said = any_place.ok("pause", "bank:app", "ledger", "--by", "ada", "--note", "hands off").out
    assert said == "ledger is paused\n"
    again = any_place.ok("pause", "bank:app", "ledger", "--json").json
    assert again == {"projection": "ledger", "state": "paused", "changed": False}
    any_place.credit(1)
    any_place.wait_for(1, "balances")
    status = any_place.statuses()["ledger"]
    assert (status["state"], status["position"]) == ("paused", 0)
    assert status["leader"].endswith(f":{worker.pid}")
    assert (status["paused_by"], status["paused_note"]) == ("ada", "hands off")
    table = any_place.ok("status", "bank:app").out
    assert "paused" in table
    assert "ledger is paused by ada since" in table
    reason = explain(any_place)["paused"]
    assert reason["text"].startswith("it is paused by ada since")
    assert reason["text"].endswith("hands off")
    assert "holdfast resume ledger" in reason["advice"][0]
    assert any_place.ok("resume", "bank:app", "ledger").out == "ledger is resumed\n"
    any_place.wait_for(1)
    assert any_place.ok("resume", "bank:app", "ledger").out == "ledger was not paused\n"
    actions = [c["action"] for c in any_place.ok("audit", "bank:app", "--json").json["changes"]]
    assert actions == ["resume", "pause"]
    wrong = any_place.run("pause", "bank:app", "legder").error
    assert wrong == "there is no projection 'legder'; the app has: balances, ledger"


def test_rewind(any_place: Place) -> None:
    any_place.write("bank.py", module("Policy(on_error=Skip())", replayable=True))
    credit(any_place, "a", 1, -2, 3)
    worker = any_place.work()
    any_place.wait_for(3)
    worker.close()
    refused = any_place.run("rewind", "bank:app", "ledger", "--to", "first-skip")
    assert (refused.code, "add --yes" in refused.err) == (1, True)
    assert (
        "holdfast rewind ledger --to first-skip"
        in any_place.run("queue", "requeue", "bank:app", "1", "--yes").error
    )
    fix(any_place)
    done = any_place.ok("rewind", "bank:app", "ledger", "--to", "first-skip", "--yes", "--json")
    assert done.json == {"projection": "ledger", "position": 1, "position_before": 3}
    assert (
        "reset balances"
        in any_place.run("rewind", "bank:app", "balances", "--to", "0", "--yes").error
    )
    assert any_place.run("rewind", "bank:app", "ledger", "--to", "start").code == 2
    any_place.work()
    any_place.wait_for(3)
    assert any_place.contents()["ledger"] == [("a", -2), ("a", 1), ("a", 3), ("a", 3)]


# Explaining


def test_explain_a_projection_that_never_ran_and_one_that_is_done(any_place: Place) -> None:
    any_place.credit(1, 2)
    reasons = explain(any_place)
    assert list(reasons) == ["no_worker", "behind"]
    assert reasons["no_worker"]["text"] == "it has never run here"
    assert reasons["behind"]["fields"]["lag_events"] == 2
    worker = any_place.work()
    any_place.wait_for(2)
    assert list(explain(any_place)) == ["nothing_to_do"]
    worker.close()
    assert list(explain(any_place)) == ["no_worker", "nothing_to_do"]
    said = any_place.ok("explain", "bank:app", "ledger").out
    killed = "no worker runs it; the last one ended without a word"
    assert said.startswith(f"ledger:\n- {killed}\n    Start one: holdfast run\n")


def test_explain_closed_lanes(any_place: Place) -> None:
    parked(any_place)
    reason = explain(any_place)["lanes_closed"]
    assert (reason["fields"]["lanes"], reason["fields"]["events"]) == (2, 4)
    first = reason["fields"]["heads"][0]
    assert (first["id"], first["lane"], first["error_type"]) == (1, "a", "ValueError")
    assert "When the cause is fixed: holdfast queue requeue 1 3" in reason["advice"]
    assert "4 in 2 lanes" in any_place.ok("status", "bank:app").out
    status = any_place.statuses()["ledger"]
    assert (status["closed_lanes"], status["queued_events"]) == (2, 4)


def test_explain_a_fault_of_an_event_in_the_queue(closed: Place) -> None:
    closed.write("bank.py", module("Policy()"))
    closed.ok("queue", "requeue", "bank:app", "1", "--yes")
    closed.work().wait_until_said("projection faulted")
    reasons = explain(closed)
    fault = reasons["faulted"]
    assert (fault["fields"]["position"], fault["fields"]["item"]) == (2, 1)
    assert "To go on without it: holdfast queue resolve 1 --note WHY" in fault["advice"][-1]
    assert not any("queue add" in line for line in fault["advice"])
    assert not any("queue requeue" in line for line in fault["advice"])  # It waits for its turn.
    assert "no other lane" not in reasons["lanes_closed"]["text"]
    assert "- it stopped at position 2" in closed.ok("explain", "bank:app", "ledger").out
    done = closed.ok("queue", "resolve", "bank:app", "1", "--note", "refunded", "--yes").out
    assert done == "resolved 1 item\n"
    wait_until(lambda: "faulted" not in explain(closed), WAIT_SECONDS, "the lane to be drained")


def test_explain_a_fault_of_an_event_that_was_retried(any_place: Place) -> None:
    retry = "Backoff(delay_seconds=600, max_delay_seconds=600)"
    any_place.write("bank.py", module(f"Policy(on_error=Park(retry={retry}))"))
    credit(any_place, "a", -1)
    worker = any_place.work()
    any_place.wait_for(1)
    worker.close()
    any_place.write("bank.py", module("Policy()"))
    with App(any_place.url) as app:
        app.queue.mark_retrying(QueueSelection(ids=(1,)), by="me")
    any_place.work().wait_until_said("projection faulted")
    fault = explain(any_place)["faulted"]
    assert fault["fields"]["item_status"] == "failed"
    assert any("holdfast queue requeue 1" in line for line in fault["advice"])
    assert any("holdfast queue resolve 1 --note WHY" in line for line in fault["advice"])
    assert not any("queue add" in line for line in fault["advice"])


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (
            "Policy(on_error=Retry(Backoff(delay_seconds=600, max_delay_seconds=600)))",
            "a retry of",
        ),
        (
            "Policy(on_error=Park(), breaker=Breaker(failures=1, pause_seconds=600))",
            "the circuit breaker",
        ),
    ],
)
def test_explain_a_wait(any_place: Place, policy: str, what: str) -> None:
    any_place.write("bank.py", module(policy))
    credit(any_place, "a", -1)
    any_place.work()
    wait_until(lambda: "waiting" in explain(any_place), WAIT_SECONDS, "a wait")
    reason = explain(any_place)["waiting"]
    assert what in reason["text"]
    assert what in reason["fields"]["waiting_for"]
    assert what in any_place.ok("status", "bank:app").out
    assert any_place.statuses()["ledger"]["waiting_until"] is not None


def test_explain_names_the_append_that_holds_the_feed(tmp_path: Path, postgres_url: str) -> None:
    with (
        closing(Place(tmp_path / "place", postgres_url)) as place,
        App(postgres_url) as app,
        psycopg.connect(postgres_url) as slow,
    ):
        place.work()
        app.journal.append("late", [NewEvent({"amount": 1}, type="Credited")], connection=slow)
        slow.execute("SELECT 'the slow one'")
        place.credit(2)
        wait_until(lambda: "held" in explain(place), WAIT_SECONDS, "the feed to be held")
        reason = explain(place)["held"]
        (append,) = reason["fields"]["appends"]
        assert append["pid"] == slow.info.backend_pid
        assert append["query"] == "SELECT 'the slow one'"
        assert append["since"]
        said = place.ok("explain", "bank:app", "ledger").out
        assert f"process {slow.info.backend_pid} of the database server, since" in said
        assert f"pg_terminate_backend({slow.info.backend_pid})" in said
        slow.commit()
        wait_until(lambda: list(explain(place)) == ["nothing_to_do"], WAIT_SECONDS, "both events")


def test_explain_a_fault_that_needs_a_reset(any_place: Place) -> None:
    any_place.credit(1)
    any_place.work().close()
    with App(any_place.url) as app, app._database.writing() as connection:
        connection.tx.execute(
            "UPDATE holdfast_checkpoint SET needs_reset = TRUE, state = 'faulted', error_at ="
            " '2026-01-01 00:00:00+00:00', error_type = 'Ended', error_message = 'it is',"
            " error_stacktrace = '' WHERE projection = 'ledger'"
        )
    fault = explain(any_place)["faulted"]
    assert fault["fields"]["needs_reset"] is True
    assert any("holdfast reset ledger" in line for line in fault["advice"])
    assert not any("queue add" in line for line in fault["advice"])


def test_explain_where_the_database_is_away(place: Place) -> None:
    place.write(
        "away.py",
        "import holdfast, bank\napp = holdfast.App('postgresql://nobody@127.0.0.1:1/none')\n"
        "app.projection(bank.Ledger)\n",
    )
    said = place.run("explain", "away:app", "ledger").error
    assert "the database can't be reached from here" in said
