"""The example of Kafka, as a user runs it: `produce`, then `holdfast run`."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.bank_topic import Make, read_topic
from tests.support.pages import ROOT
from tests.support.postgres import wait_until

EXAMPLE = ROOT / "examples" / "bank_from_kafka.py"
WAIT_SECONDS = 60.0
Rows = list[tuple[str, str, int, int]]


class Bank:
    """A folder in which somebody tries the example, with topics of its own."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, dead_letters: str) -> None:
        self.folder, self.code = folder, folder / EXAMPLE.name
        self.code.write_text(EXAMPLE.read_text())
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self.environment = {
            **kept,
            "KAFKA_BOOTSTRAP": bootstrap,
            "KAFKA_TOPIC": topic,
            "KAFKA_DEAD_LETTERS": dead_letters,
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def produce(self) -> None:
        said = self._run(self.code.name, "produce")
        assert said.startswith("wrote 120 records to ")

    def holdfast(self, *arguments: str) -> str:
        return self._run("-m", "holdfast", *arguments)

    def start_worker(self) -> None:
        command = [sys.executable, "-m", "holdfast", "run", "bank_from_kafka:app"]
        worker = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stderr=subprocess.DEVNULL
        )
        self.workers.append(worker)

    def stop_worker(self) -> int:
        worker = self.workers.pop()
        worker.send_signal(signal.SIGTERM)
        return worker.wait(WAIT_SECONDS)

    def rows(self) -> Rows:
        """What is in the table, by account."""
        with closing(sqlite3.connect(self.folder / "bank.db")) as connection:
            try:
                found = connection.execute("SELECT * FROM balances").fetchall()
            except sqlite3.OperationalError:  # It is not there yet.
                return []
        return sorted(found, key=lambda row: int(row[0].removeprefix("account-")))

    def wait_for(self, rows: Rows) -> None:
        wait_until(lambda: self.rows() == rows, WAIT_SECONDS, f"{rows}")

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait(WAIT_SECONDS)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def bank(tmp_path: Path, kafka_broker: str, kafka_topic: Make) -> Iterator[Bank]:
    bank = Bank(tmp_path, kafka_broker, kafka_topic(partitions=3), kafka_topic())
    yield bank
    bank.close()


def test_the_example_of_kafka(bank: Bank, kafka_broker: str) -> None:
    bank.produce()
    bank.start_worker()
    expected = [(f"account-{n}", f"owner {n}", 900 * n, 10) for n in range(1, 11)]
    expected[2] = ("account-3", "owner 3", 4 * 300, 5)
    bank.wait_for(expected)

    explained = bank.holdfast("explain", "bank_from_kafka:app", "balances")
    assert "lane account-3" in explained
    assert "5 events behind it: KeyError: 'CHF'" in explained
    letters = bank.environment["KAFKA_DEAD_LETTERS"]
    wait_until(lambda: len(read_topic(kafka_broker, letters)) == 1, WAIT_SECONDS, "the letter")
    (letter,) = read_topic(kafka_broker, letters)
    assert letter.key() == b"account-3"

    bank.produce()
    assert bank.stop_worker() == 0
    code = bank.code.read_text()
    bank.code.write_text(code.replace('"USD": 92', '"USD": 92, "CHF": 104'))
    bank.start_worker()
    bank.holdfast("queue", "requeue", "bank_from_kafka:app", "--lane", "account-3", "--yes")
    expected[2] = ("account-3", "owner 3", 8 * 300 + 3 * 104, 10)
    bank.wait_for(expected)
    assert bank.holdfast("queue", "list", "bank_from_kafka:app") == "the queue is empty\n"
    assert bank.stop_worker() == 0
