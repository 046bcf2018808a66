"""One Kafka broker for all processes of a test run.

The first process that needs the broker starts a keeper, which is no child of any test and owns the
broker. Who uses the broker holds a shared lock on a file, and the system lets go of it whenever
that process ends, in whatever way. When the keeper can have the lock for itself, nobody uses the
broker any more, and the keeper ends it.
"""

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from tests.support.kafka import KafkaBroker
from tests.support.kafka_files import DOWNLOAD_SECONDS, KafkaUnavailable, file_lock
from tests.support.postgres import is_alive, wait_until

ROOT = Path(__file__).parents[2]
START_SECONDS = DOWNLOAD_SECONDS + 60
POLL_SECONDS = 0.1


@contextmanager
def shared_broker(folder: Path) -> Iterator[str]:
    """The address of the broker that all who name this folder share.

    The first to come starts it, the last to go ends it. When it could not be started, everybody
    gets the same `KafkaUnavailable`, and nobody tries again.
    """
    with (folder / "users").open("ab") as users:
        with file_lock(folder / "lock"):
            fcntl.flock(users, fcntl.LOCK_SH)  # waits while a keeper ends the broker
            if not (folder / "broker.json").exists():
                _start_keeper(folder)
        broker = json.loads((folder / "broker.json").read_text())
        if "unavailable" in broker:
            raise KafkaUnavailable(broker["unavailable"])
        yield broker["bootstrap"]


def _start_keeper(folder: Path) -> None:
    """Start the keeper and return when it is known how it went."""
    command = [sys.executable, "-m", "tests.support.kafka_shared", str(folder)]
    detached = ["sh", "-c", '"$@" >"$0" 2>&1 & echo $!', str(folder / "keeper.log"), *command]
    shell = subprocess.run(
        detached, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True, check=True
    )
    state = folder / "broker.json"
    with suppress(psutil.NoSuchProcess):
        keeper = psutil.Process(int(shell.stdout))
        wait_until(
            lambda: state.exists() or not is_alive(keeper),
            START_SECONDS,
            "the keeper of the Kafka broker",
        )
    if not state.exists():
        output = (folder / "keeper.log").read_text(errors="replace")
        _say(folder, {"unavailable": f"the keeper of the broker ended:\n{output}"})


def main(folder: Path) -> None:
    """Keep a broker for as long as anybody holds the lock."""
    with (folder / "users").open("ab") as users:
        try:
            with KafkaBroker() as broker:
                _say(folder, {"bootstrap": broker.bootstrap, "pid": broker.pid})
                while not _is_alone(users):
                    time.sleep(POLL_SECONDS)
                (folder / "broker.json").unlink()
        except KafkaUnavailable as error:
            _say(folder, {"unavailable": str(error)})


def _say(folder: Path, state: dict[str, str | int]) -> None:
    new = folder / "broker.new"
    new.write_text(json.dumps(state))
    new.rename(folder / "broker.json")


def _is_alone(users: IO[bytes]) -> bool:
    """Whether nobody else holds the lock; if so we do, and who comes waits until we are gone."""
    with suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
