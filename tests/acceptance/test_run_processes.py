"""`holdfast run --processes N`: work is shared, dead processes are replaced, none is left."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.support.command import Command, Place
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0


def start(place: Place, processes: int) -> Command:
    """In a fresh interpreter: the worker processes are started by its command line."""
    place.fresh = True
    command = place.start("run", "bank:app", "--processes", str(processes))
    place.fresh = False
    return command


def leaders(place: Place) -> dict[str, int]:
    """The process that runs each projection."""
    found = {name: status["leader"] for name, status in place.statuses().items()}
    return {name: int(leader.split(":")[1]) for name, leader in found.items() if leader}


def await_leaders(place: Place, accept: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    wait_until(lambda: accept(leaders(place)), WAIT_SECONDS, "the projections to be run")
    return leaders(place)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_process_runs_its_share_and_is_replaced(any_place: Place) -> None:
    any_place.credit(1)
    command = start(any_place, 2)
    first = await_leaders(any_place, lambda found: len(found) == 2)
    assert len({*first.values(), command.pid}) == 3
    os.kill(first["ledger"], signal.SIGKILL)
    second = await_leaders(
        any_place, lambda found: found.get("ledger", first["ledger"]) != first["ledger"]
    )
    assert second["balances"] == first["balances"]
    any_place.credit(2, 3)
    any_place.wait_for(3)
    assert command.send(signal.SIGTERM).wait() == 0
    assert not any(map(is_alive, [*first.values(), *second.values()]))
    rows = any_place.contents()
    assert rows["balances"] == [("a", 6, 3)]
    assert rows["ledger"] == [("a", 1), ("a", 2), ("a", 3)]
    assert f"process {first['ledger']} was ended by signal 9" in "\n".join(command.err)


def test_no_more_processes_than_there_is_work_for(any_place: Place) -> None:
    any_place.credit(1)
    command = start(any_place, 9)
    await_leaders(any_place, lambda found: len(found) == 2)
    assert command.send(signal.SIGINT).wait() == 0
    said = "\n".join(command.err)
    assert "process 2 of 2 is" in said
    assert "starts 2 of 9 processes" in said


def test_a_malformed_share_is_refused(any_place: Place) -> None:
    result = any_place.run("run", "bank:app", HOLDFAST_PART="one half")
    assert result.code == 1
    assert "HOLDFAST_PART is 'one half'" in result.error


def test_a_process_whose_projections_have_faulted_waits_for_the_others(place: Place) -> None:
    place.credit(5, -1)
    command = start(place, 2)
    place.wait_for(1, "ledger", state="faulted")
    place.wait_for(2, "balances")
    place.ok("queue", "add", "bank:app", "ledger", "--position", "2")
    place.wait_for(2, "ledger")
    assert command.send(signal.SIGTERM).wait() == 0

    place.credit(-1)
    place.write("bank.py", (place.folder / "bank.py").read_text().replace("+= ", "+= 1 / 0 + "))
    place.ok("reset", "bank:app", "ledger", "--yes")
    assert start(place, 2).wait() == 3


def test_orphaned_processes_end(any_place: Place) -> None:
    any_place.credit(1)
    command = start(any_place, 2)
    found = await_leaders(any_place, lambda found: len(found) == 2)
    any_place.wait_for(1)
    command.send(signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, found.values())), WAIT_SECONDS, "them to end")
    assert {s["state"] for s in any_place.statuses().values()} == {"stopped"}


def test_processes_that_are_stopped_during_their_imports_end_with_code_0(place: Place) -> None:
    """As when a deployment is rolled back at once."""
    place.write(
        "slow.py",
        f"""
import os, time
from pathlib import Path
from bank import app

here = Path({str(place.folder)!r})
if Path(here / "parent").exists():
    Path(here / f"{{os.getpid()}}.child").touch()
    time.sleep({WAIT_SECONDS})
Path(here / "parent").touch()
""",
    )
    place.fresh = True
    command = place.start("run", "slow:app", "--processes", "2")

    def children() -> list[Path]:
        return [*place.folder.glob("*.child")]

    wait_until(lambda: len(children()) == 2, WAIT_SECONDS, "two processes to import")
    assert command.send(signal.SIGTERM).wait() == 0
    assert not any(is_alive(int(path.stem)) for path in children())
