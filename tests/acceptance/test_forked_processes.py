"""The processes that the tests fork behave like fresh interpreters."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command import Place
from tests.support.postgres import is_alive, wait_until
from tests.support.processes import ROOT, Process

WAIT_SECONDS = 30.0

SEEN = """
import json, os, signal, sys, threading
streams = [sys.stdin, sys.stdout, sys.stderr]
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "main": sys.modules["__main__"].__spec__.name,
    "cwd": os.getcwd(),
    "environment": dict(os.environ),
    "leads a session": os.getsid(0) == os.getpid(),
    "descriptors": sorted(set(os.listdir("/dev/fd")) - {str(os.open(".", os.O_RDONLY))}),
    "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": threading.active_count(),
    "streams": [[s.encoding, s.errors, s.line_buffering, s.write_through] for s in streams],
    "warnings": [str(f) for f in sys.warnoptions],
    "limits": sys.getrecursionlimit(),
}))
from bank import app
"""


def seen(place: Place) -> dict[str, Any]:
    first, head = place.ok("journal", "head", "seen:app", "--json", HOLDFAST_X="y").out.splitlines()
    assert json.loads(head) == {"head": 0}
    found: dict[str, Any] = json.loads(first)
    return found


def test_a_forked_process_sees_the_same_environment(place: Place) -> None:
    place.write("seen.py", SEEN)
    forked = seen(place)
    place.fresh = True
    assert forked == seen(place)
    assert forked["environment"]["HOLDFAST_X"] == "y"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["journal", "head", "bank:app"], 0),
        (["status", "nowhere:app"], 1),
        (["status"], 2),
        (["run", "bank:app", "--exit-on-fault"], 3),
    ],
)
def test_a_forked_process_has_the_same_output_and_exit_code(
    place: Place, arguments: list[str], code: int
) -> None:
    place.credit(-1)
    forked = place.run(*arguments)
    place.fresh = True
    fresh = place.run(*arguments)
    assert (forked.code, fresh.code) == (code, code)
    assert forked.out == fresh.out
    if code != 3:  # A worker's log has times in it.
        assert forked.err == fresh.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_forked_process_in_the_same_way(
    place: Place, number: signal.Signals
) -> None:
    place.write("stay.py", "print('here', flush=True)\nimport signal\nsignal.pause()\n")
    ends = []
    for fresh in (False, True):
        place.fresh = fresh
        command = place.start("status", "stay:app")
        command.wait_until_said("here")
        ends.append((command.send(number).wait(), len(command.err)))
    assert ends[0] == ends[1]


def test_a_forked_process_waits_for_threads_and_runs_exit_handlers(place: Place) -> None:
    place.write("late.py", LATE)
    assert place.ok("journal", "head", "late:app").out.splitlines() == ["0", "thread", "last"]


def test_a_forked_process_notices_a_closed_pipe(place: Place) -> None:
    place.write("flood.py", "while True: print('x' * 1000)\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = Process(["flood"], cwd=place.folder, env=env)
    assert process.stdout.readline() == b"x" * 1000 + b"\n"
    process.stdout.close()
    assert b"BrokenPipeError" in process.stderr.read()
    assert process.wait(WAIT_SECONDS) == 1
    process.stdin.close()
    process.stderr.close()


LATE = """
import atexit, threading
from bank import app
atexit.register(print, "last")
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
"""

TESTS = """
import os, sys, time
from pathlib import Path
from tests.support.processes import Process
process = Process(["stay"], cwd=Path(sys.argv[1]), env=dict(os.environ))
print(process.pid, flush=True)
time.sleep(600)
"""


def test_processes_end_with_the_tests_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "stay.py").write_text("import time\ntime.sleep(600)\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen(
        [sys.executable, "-c", TESTS, str(tmp_path)], env=env, stdout=subprocess.PIPE
    ) as tests:
        assert tests.stdout is not None
        stays = psutil.Process(int(tests.stdout.readline()))
        started = [stays, *psutil.Process(tests.pid).children()]
        tests.kill()
    wait_until(lambda: not any(map(is_alive, started)), WAIT_SECONDS, "all to have ended")
