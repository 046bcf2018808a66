"""`holdfast demo`: runs to its end, finds what is wrong, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.support.command import Command, Place
from tests.support.postgres import is_alive, wait_until

WAIT_SECONDS = 60.0
SHORT = ("demo", "--events", "1000")


def pid_of_worker(demo: Command) -> int:
    found = [re.search(r"pid (\d+)", line) for line in demo.out]
    return next(int(match[1]) for match in found if match)


def test_every_row_is_right_and_nothing_is_left(place: Place, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = place.ok(*SHORT, TMPDIR=str(temporary))
    for text in ("kill -9", "goes on from exactly what is committed", "Nothing lost, nothing"):
        assert text in done.out
    assert "WRONG" not in done.out
    assert list(temporary.iterdir()) == []


def test_on_postgres_with_a_report_in_json(place: Place, postgres_url: str) -> None:
    done = place.ok(*SHORT, "--json", "--url", postgres_url)
    report = done.json
    assert report["right"]
    assert report["events"] >= 1_000
    assert all(check["expected"] == check["found"] for check in report["checks"])
    with psycopg.connect(postgres_url) as server:
        assert server.execute("SELECT count(*) FROM balances").fetchone() == (100,)
    again = place.run(*SHORT, "--url", postgres_url)
    assert "needs an empty database" in again.error


def test_keep_shows_commands_and_the_audit_finds_wrong_rows(place: Place, tmp_path: Path) -> None:
    said = place.ok(*SHORT, "--keep", TMPDIR=str(tmp_path)).out
    (folder,) = tmp_path.glob("holdfast-demo-*")
    assert f"cd {folder} && holdfast status bank:app" in said
    found = _found_after_each(CHANGES, f"sqlite:///{folder}/bank.db")
    assert found[0] == []
    for (before, after), what in zip(pairwise(found), CHANGES.values(), strict=True):
        assert what not in before
        assert what in after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_worker_and_no_folder(
    place: Place, tmp_path: Path, number: signal.Signals
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    demo = place.start("demo", TMPDIR=str(temporary))
    demo.wait_until_said("balances running")
    worker = psutil.Process(pid_of_worker(demo))
    demo.send(number)
    assert demo.wait() in (1, 128 + number)
    wait_until(lambda: not is_alive(worker), WAIT_SECONDS, "the worker to be gone")
    assert list(temporary.iterdir()) == []
    assert not any("Traceback" in line for line in demo.err)


CHANGES = {
    "UPDATE balances SET amount = amount + 1 WHERE account = 'account-007'": (
        "money in all accounts"
    ),
    "DELETE FROM ledger WHERE rowid = 1": "bookings missing from the ledger",
    "INSERT INTO ledger SELECT * FROM ledger WHERE rowid = 2": "bookings in the ledger twice",
    "UPDATE daily_totals SET amount = 0 WHERE kind = 'Deposited'": "daily totals that are right",
    "DELETE FROM balances WHERE account = 'account-008'": "accounts with a balance",
}
"""Changes to the tables, and what the audit must find after each."""

AUDIT = """
import json, sqlite3, sys
from holdfast.cli.demo import bank
from holdfast.cli.demo.audit import audit

for change in ["SELECT 1", *sys.argv[1:]]:
    connection = sqlite3.connect(bank.app.url.path)
    connection.execute(change)
    connection.commit()
    connection.close()
    checks = audit(bank.app.journal.head())
    print(json.dumps([check.what for check in checks if not check.is_right]))
"""


def _found_after_each(changes: Iterable[str], url: str) -> list[list[str]]:
    """The checks that fail, at first and after each change."""
    done = subprocess.run(
        [sys.executable, "-c", AUDIT, *changes],
        env={**os.environ, "BANK_URL": url},
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
