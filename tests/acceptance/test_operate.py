"""`holdfast migrate`, `reset` and `depose`."""

import signal

import pytest

from tests.support.command import Command, Place


def run_to(place: Place, position: int) -> Command:
    """A worker that has applied everything."""
    worker = place.work()
    place.wait_for(position)
    return worker


def test_migrate_says_what_it_did(any_place: Place) -> None:
    first = any_place.ok("migrate", "bank:app", "--json").json
    assert first == {"url": any_place.url, "migrations": 1}
    assert any_place.ok("migrate", "bank:app", "--json").json["migrations"] == 0
    assert "nothing to do" in any_place.ok("migrate", "bank:app").out


def test_migrate_of_an_app_without_auto_migrate(any_place: Place) -> None:
    text = (any_place.folder / "bank.py").read_text()
    any_place.write("bank.py", text.replace("App(URL)", "App(URL, auto_migrate=False)"))
    assert "run holdfast migrate" in any_place.run("status", "bank:app").error
    assert "ran 1 migration" in any_place.ok("migrate", "bank:app").out
    any_place.ok("status", "bank:app")


def test_reset_asks_first(any_place: Place) -> None:
    any_place.credit(1, 2)
    run_to(any_place, 2).send(signal.SIGTERM).wait()
    before = any_place.contents()
    for answer in (b"n\n", b"", b"y\n"):
        refused = any_place.run("reset", "bank:app", "ledger", stdin=answer)
        assert (refused.code, refused.out) == (1, "")
        assert "This clears on" in refused.err
        assert ": ledger; and sets the checkpoint of 'ledger' from position 2" in refused.err
        assert "stdin is not a terminal, so nobody can answer; add --yes" in refused.err
        assert "messages that they send and calls to other systems are made again" in refused.err
    rows = any_place.run("reset", "bank:app", "balances", stdin=b"n\n")
    assert "made again" not in rows.err
    assert any_place.contents() == before
    done = any_place.run("reset", "bank:app", "ledger", "--json", "--yes")
    assert done.json == {
        "projection": "ledger",
        "tables": ["ledger"],
        "tables_left": [],
        "position_before": 2,
    }
    after = any_place.contents()
    assert after["ledger"] == []
    assert after["balances"] == before["balances"]
    assert after["holdfast_event"] == before["holdfast_event"]
    assert any_place.statuses()["ledger"]["position"] == 0


def test_the_running_worker_builds_a_reset_projection_again(any_place: Place) -> None:
    any_place.credit(1, 2)
    worker = run_to(any_place, 2)
    epoch = any_place.statuses()["ledger"]["epoch"]
    any_place.ok("reset", "bank:app", "ledger", "--yes", "--by", "anna", "--note", "again")
    (row,) = any_place.ok("audit", "bank:app", "--json").json["changes"]
    assert (row["actor"], row["action"], row["note"]) == ("anna", "reset", "again")
    worker.wait_until_said("projection started: projection=ledger", times=2)
    any_place.wait_for(2, "ledger")
    assert any_place.statuses()["ledger"]["epoch"] > epoch
    assert worker.send(signal.SIGTERM).wait() == 0
    assert any_place.contents()["ledger"] == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("command", ["reset", "depose"])
def test_an_unknown_projection(any_place: Place, command: str) -> None:
    any_place.ok("migrate", "bank:app")
    before = any_place.contents()
    said = any_place.run(command, "bank:app", "legder", "--yes").error
    assert said == "there is no projection 'legder'; the app has: balances, ledger"
    assert any_place.contents() == before


def test_reset_fixes_a_changed_row_type(any_place: Place) -> None:
    """The fault says to reset, which creates the table again."""
    any_place.credit(1, 2)
    run_to(any_place, 2).send(signal.SIGTERM).wait()
    text = (any_place.folder / "bank.py").read_text()
    any_place.write("bank.py", text.replace("amount: int = 0", 'amount: str = ""', 1)
                    .replace("row.amount += event", "row.amount += '+' + str(event")
                    .replace("data.amount\n\n\n@app", "data.amount)\n\n\n@app"))  # fmt: skip
    worker = any_place.start("run", "bank:app", "--exit-on-fault")
    assert worker.wait() == 3
    assert any("run holdfast reset balances" in line for line in worker.err)
    any_place.ok("reset", "bank:app", "balances", "--yes")
    run_to(any_place, 2).send(signal.SIGTERM).wait()
    assert any_place.contents()["balances"] == [("a", "+1+2", 2)]


def test_reset_names_tables_that_it_leaves(place: Place) -> None:
    text = (place.folder / "bank.py").read_text()
    place.write("bank.py", text.replace('f"INSERT INTO ledger', 'f"INSERT INTO notes'))
    said = place.run("reset", "bank:app", "ledger", stdin=b"n\n").err
    assert (
        "Not cleared, because they are not its own and its class has no clear(tx): notes." in said
    )
    assert place.ok("reset", "bank:app", "ledger", "--yes").out.endswith("; not cleared: notes\n")


def test_reset_says_that_it_calls_clear(place: Place) -> None:
    text = (place.folder / "bank.py").read_text()
    tables = '{"ledger": "CREATE TABLE ledger (account text, amount bigint)"}'
    assert tables in text
    clear = "    def clear(self, tx: Tx) -> None:\n        pass"
    place.write("bank.py", text.replace(tables, f"{tables}\n\n{clear}"))
    said = place.run("reset", "bank:app", "ledger").err
    assert "It calls clear(tx) of its class" in said


def test_reset_fixes_a_table_that_was_dropped(place: Place) -> None:
    place.credit(1, 2)
    run_to(place, 2).send(signal.SIGTERM).wait()
    text = (place.folder / "bank.py").read_text()
    place.write(
        "drop.py", f"{text}\nwith app._database.writing() as c: c.script('DROP TABLE ledger')"
    )
    place.ok("journal", "head", "drop:app")
    worker = place.start("run", "bank:app", "--exit-on-fault")
    assert worker.wait() == 3
    assert any("run holdfast reset ledger" in line for line in worker.err)
    place.ok("reset", "bank:app", "ledger", "--yes")
    run_to(place, 2).send(signal.SIGTERM).wait()
    assert place.contents()["ledger"] == [("a", 1), ("a", 2)]


def test_depose_ends_the_leadership_of_a_frozen_process(any_place: Place) -> None:
    any_place.credit(1)
    frozen = run_to(any_place, 1)
    frozen.send(signal.SIGSTOP)
    other = any_place.start("run", "bank:app")
    other.wait_until_said("running 2 projections")
    asked = any_place.run("depose", "bank:app", "ledger", stdin=b"y\n")
    assert asked.code == 1
    assert f":{frozen.pid}. This takes it away." in asked.err
    assert any_place.statuses()["ledger"]["leader"].endswith(f":{frozen.pid}")
    # On PostgreSQL one connection holds all the leases of a process: they are lost together.
    on_sqlite = any_place.url.startswith("sqlite")
    for name in ("ledger", "balances") if on_sqlite else ("ledger",):
        done = any_place.ok("depose", "bank:app", name, "--yes", "--json").json
        assert (done["projection"], done["deposed"]) == (name, 1)
    other.wait_until_said("projection started", times=2)
    any_place.credit(2, 3)
    any_place.wait_for(3)
    frozen.send(signal.SIGCONT)
    assert frozen.send(signal.SIGTERM).wait() == 0
    assert other.send(signal.SIGTERM).wait() == 0
    assert any_place.contents()["ledger"] == [("a", 1), ("a", 2), ("a", 3)]


def test_depose_where_nobody_leads(any_place: Place) -> None:
    done = any_place.ok("depose", "bank:app", "ledger", "--yes", "--json").json
    assert done == {"projection": "ledger", "deposed": 0, "leaders": []}


def test_forward_says_what_it_passes_and_asks(any_place: Place) -> None:
    any_place.credit(1, 2)
    run_to(any_place, 2).send(signal.SIGTERM).wait()
    any_place.credit(3, 4)
    args = ("forward", "bank:app", "ledger", "--note", "nobody needs them")
    refused = any_place.run(*args, "--to", "now")
    assert refused.code == 1
    assert "'ledger' on" in refused.err
    assert "from position 2 to 4, past 2 events. They are never applied." in refused.err
    assert any_place.statuses()["ledger"]["position"] == 2
    for wrong, message in (
        ("soon", "neither now, nor a position, nor a time"),
        ("2026-01-31T12:00", "needs a time zone"),
    ):
        assert message in any_place.run(*args, "--to", wrong, "--yes").err
    assert "still to come" in any_place.run(*args, "--to", "2999-01-31T12:00Z", "--yes").error
    assert "by is empty" in any_place.run(*args, "--to", "3", "--yes", "--by", "").error
    done = any_place.ok(*args, "--to", "3", "--yes", "--by", "ann", "--json").json
    moved = {"feed": "journal", "position_before": 2, "position": 3, "events": 1}
    assert done == {"projection": "ledger", "events": 1, "feeds": [moved]}
    changes = any_place.ok("audit", "bank:app", "--json").json["changes"]
    assert [(change["action"], change["actor"]) for change in changes] == [("forward", "ann")]


def test_settings_are_set_shown_and_reset(any_place: Place) -> None:
    any_place.credit(1)
    run_to(any_place, 1).send(signal.SIGTERM).wait()
    values = ("poll.interval_seconds=2.5", "poll.wake=false", "backoff.max_attempts=none")
    done = any_place.ok("set", "bank:app", "ledger", *values, "--by", "ann", "--json").json
    wanted = {"poll.interval_seconds": 2.5, "poll.wake": False, "backoff.max_attempts": None}
    assert done == {"projection": "ledger", "set": wanted, "reset": []}
    assert any_place.statuses()["ledger"]["overrides"] == wanted
    assert "ledger has settings that differ" in any_place.ok("status", "bank:app").out
    shown = any_place.ok("set", "bank:app", "ledger").out
    assert "2.5" in shown
    assert "ann" in shown
    settings = any_place.ok("set", "bank:app", "ledger", "--json").json["settings"]
    (interval,) = [s for s in settings if s["name"] == "poll.interval_seconds"]
    assert (interval["value"], interval["code_value"]) == (2.5, 0.1)
    assert any_place.ok("set", "bank:app", "ledger", "poll.wake=default").out == (
        "ledger: poll.wake as in the code\n"
    )
    done = any_place.ok("set", "bank:app", "ledger", "--reset", "--json").json
    assert done["reset"] == ["backoff.max_attempts", "poll.interval_seconds"]
    for wrong, message in (
        (("poll.wake=often",), "a value is a number, true, false, none or default"),
        (("poll.interval_seconds=-1",), "Poll.interval_seconds is -1"),
        (("poll.x=1",), "there is no setting 'poll.x'"),
        (("poll.wake=true", "--reset"), "leave out the values"),
    ):
        assert message in any_place.run("set", "bank:app", "ledger", *wrong).err
