"""`holdfast outbox`, and the other commands on an outbox projection, as in the runbook."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from tests.support.command import Place
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0
OUTBOX = """
@app.projection(delivery="outbox", policy=Policy(on_error=Park()))
class Ledger"""


@pytest.fixture
def place(any_place: Place) -> Place:
    """A bank whose ledger is delivered by an outbox, and fails for the amount 13."""
    text = (Path(__file__).parent / "bank_module.py").read_text()
    text = text.replace("import App, ", "import App, Park, Policy, ")
    text = text.replace("\n@app.projection\nclass Ledger", OUTBOX)
    any_place.write("bank.py", failing(text))
    return any_place


def failing(text: str) -> str:
    call = "tx.execute("
    check = 'if event.data.amount == 13:\n            raise ValueError("unlucky")\n        '
    assert text.count(call) == 1
    return text.replace(call, check + call)


def ledger(place: Place) -> dict[str, Any]:
    (found,) = place.ok("outbox", "report", "bank:app", "--json").json["outboxes"]
    assert found["projection"] == "ledger"
    return dict(found)


def test_the_runbook(place: Place) -> None:
    place.credit(1, 13, 2)
    worker = place.start("run", "bank:app")
    wait_until(lambda: ledger(place)["depth"]["dead"] == 1, WAIT_SECONDS, "a dead letter")
    report = ledger(place)
    assert report["depth"] == {"pending": 1, "processing": 0, "retrying": 0, "failed": 0, "dead": 1}
    assert [relay["is_alive"] for relay in report["relays"]] == [True]
    (item,) = report["items"]
    assert item["error_message"] == "unlucky"
    said = place.ok("outbox", "report", "bank:app", "--status", "dead").out
    assert "ledger" in said
    assert "ValueError: unlucky" in said
    assert "unlucky" in place.ok("queue", "show", "bank:app", str(item["id"])).out
    explained = place.ok("explain", "bank:app", "ledger").out
    assert "1 lane is closed" in explained

    # Off: no relay delivers, and nothing is lost.
    assert place.ok("outbox", "mode", "bank:app", "ledger", "off", "--yes").out == "ledger is off\n"
    place.credit(3)
    explained = place.ok("explain", "bank:app", "ledger").out
    assert "its mode is off" in explained
    assert "at work" not in explained
    assert "ledger has mode off: nothing is applied" in place.ok("status", "bank:app").out
    assert ledger(place)["depth"]["pending"] == 2

    # The cause is fixed and deployed.
    worker.close()
    mended = (place.folder / "bank.py").read_text().replace("amount == 13", "amount == -13")
    place.write("bank.py", mended)
    place.start("run", "bank:app")
    place.ok("outbox", "mode", "bank:app", "ledger", "live", "--yes", "--note", "mended")
    change = place.ok(
        "queue", "requeue", "bank:app", "--projection", "ledger", "--status", "dead",
        "--limit", "100", "--yes", "--json",
    ).json  # fmt: skip
    assert len(change["items"]) == 1
    wait_until(lambda: not any(ledger(place)["depth"].values()), WAIT_SECONDS, "an empty queue")
    with App(place.url) as app:
        assert [row.action for row in app.audit()] == ["requeue", "mode", "mode"]


def test_a_wrong_mode_or_projection(place: Place) -> None:
    assert place.run("outbox", "mode", "bank:app", "ledger", "dark").code == 2
    found = place.run("outbox", "mode", "bank:app", "balances", "off", "--yes")
    assert "is not delivered by an outbox" in found.error


def test_replaying_a_single_item(place: Place) -> None:
    place.credit(13)
    (item,) = place.ok("queue", "list", "bank:app", "--json").json["items"]
    assert "stdin is not a terminal" in place.run("queue", "replay", "bank:app", "1").err
    again = place.run("queue", "replay", "bank:app", str(item["id"]), "--yes")
    assert (again.code, "has failed again: ValueError: unlucky" in again.out) == (1, True)
    mended = (place.folder / "bank.py").read_text().replace("amount == 13", "amount == -13")
    place.write("bank.py", mended)
    done = place.ok("queue", "replay", "bank:app", str(item["id"]), "--yes", "--json")
    assert done.json == {"applied": True, "item": None}
    assert place.run("queue", "replay", "bank:app", "one", "--yes").code == 2
    assert "has no item" in place.run("queue", "replay", "bank:app", "1", "--yes").error


def test_the_text_of_an_error_does_not_drive_the_terminal(place: Place) -> None:
    strange = r"\x1b[2J\x9b31m\u202e\u2028\x7f\U000e0001\nholdfast: all is well"
    text = (place.folder / "bank.py").read_text()
    place.write("bank.py", text.replace('"unlucky"', f'"{strange}"'))
    place.write("broken.py", f'raise ValueError("{strange}")')
    place.credit(13)
    (item,) = place.ok("queue", "list", "bank:app", "--json").json["items"]
    id_ = str(item["id"])
    failed = place.run("queue", "replay", "bank:app", id_, "--yes")
    told = [
        failed,
        place.run("queue", "replay", "bank:app", id_, "--yes", "--json"),
        place.ok("queue", "show", "bank:app", id_),
        place.ok("queue", "show", "bank:app", id_, "--json"),
        place.ok("queue", "list", "bank:app"),
        place.ok("explain", "bank:app", "ledger"),
        place.ok("explain", "bank:app", "ledger", "--json"),
        place.run("status", "broken:app"),
        place.run("status", "broken:app", "-v"),
        place.run("queue", "resolve", "bank:app", id_, "--note", "x"),
    ]
    for result in told:
        assert all(line.isprintable() for line in (result.out + result.err).split("\n")), result
    assert "Traceback" in told[-2].err
    assert "\\x1b[2J\\x9b31m\\u202e" in failed.out
    assert len(failed.out.splitlines()) == 1
    message = told[1].json["item"]["error_message"]
    assert message == "\x1b[2J\x9b31m\u202e\u2028\x7f\U000e0001\nholdfast: all is well"


def test_forgetting_a_projection_that_the_code_no_longer_has(place: Place) -> None:
    place.ok("status", "bank:app")
    place.credit(1, 2)
    said = place.run("outbox", "forget", "bank:app", "ledger", "--yes")
    assert (said.code, "take it out of the code" in said.err) == (2, True)
    text = (Path(__file__).parent / "bank_module.py").read_text()
    place.write("bank.py", text.replace("class Ledger", "class Other"))
    place.credit(3)
    assert ledger(place)["depth"]["pending"] == 3
    done = place.ok("outbox", "forget", "bank:app", "ledger", "--yes", "--json")
    assert done.json == {"projection": "ledger", "items": 3}
    place.credit(4)
    assert place.ok("outbox", "report", "bank:app", "--json").json == {"outboxes": []}


def test_forgetting_the_outbox_of_a_projection_of_the_log(place: Place) -> None:
    place.ok("migrate", "bank:app")
    place.credit(1)
    text = (place.folder / "bank.py").read_text()
    place.write("bank.py", text.replace('delivery="outbox"', 'delivery="log"'))
    done = place.ok("outbox", "forget", "bank:app", "ledger", "--yes", "--json")
    assert done.json == {"projection": "ledger", "items": 1}
