"""Kafka is downloaded once, whoever asks, and a reason is given where it cannot be had."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.kafka_files import VERSION

ROOT = Path(__file__).parents[2]
JAVA_17 = "echo 'openjdk version \"17.0.15\" 2025-04-15' >&2"
DOWNLOADS = """
    echo called >>"$CALLS"
    for argument; do
        case $argument in -DoutputDirectory=*) folder=${argument#*=} ;; esac
    done
    grep -q "<artifactId>kafka_2.13</artifactId>" pom.xml && mkdir "$folder" && sleep 0.5
    echo jar >"$folder/kafka.jar"
"""


def test_many_ask_and_one_downloads(tmp_path: Path) -> None:
    environment = programs(tmp_path, java=JAVA_17, mvn=DOWNLOADS)
    with ExitStack() as stack:
        asking = [stack.enter_context(ask(environment)) for _ in range(4)]
        said = [process.communicate(timeout=60)[0].strip() for process in asking]

    folder = tmp_path / "caches" / "holdfast" / f"kafka-{VERSION}"
    assert said == [str(folder)] * 4
    assert (folder / "kafka.jar").read_text() == "jar\n"
    assert (tmp_path / "calls").read_text() == "called\n"
    assert {file.name for file in folder.parent.iterdir()} == {folder.name, f"{folder.name}.lock"}


@pytest.mark.parametrize(
    ("java", "mvn", "reason"),
    [
        (None, DOWNLOADS, "Java is missing"),
        ("echo 'java version \"1.8.0_402\"' >&2", DOWNLOADS, "needs Java 17 or later"),
        (JAVA_17, None, "there is no `mvn`"),
        (JAVA_17, "echo '[INFO] hm'; echo '[ERROR] no such registry'; exit 1", "no such registry"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_left(
    tmp_path: Path, java: str | None, mvn: str | None, reason: str
) -> None:
    with ask(programs(tmp_path, java=java, mvn=mvn)) as asking:
        said = asking.communicate(timeout=60)[0]

    assert said.startswith("unavailable: ")
    assert reason in said
    assert not list(tmp_path.glob("caches/holdfast/*/"))


def programs(folder: Path, **scripts: str | None) -> dict[str, str]:
    """An environment with an empty cache, where these shell scripts are the programs to find."""
    place = folder / "bin"
    place.mkdir()
    for name in ("sh", "grep", "mkdir", "sleep"):
        found = next(path for path in (f"/bin/{name}", f"/usr/bin/{name}") if Path(path).exists())
        (place / name).symlink_to(found)
    for name, script in scripts.items():
        if script is not None:
            (place / name).write_text(f"#!/bin/sh\n{script}\n")
            (place / name).chmod(0o755)
    caches, calls = str(folder / "caches"), str(folder / "calls")
    return os.environ | {"PATH": str(place), "XDG_CACHE_HOME": caches, "CALLS": calls}


def ask(environment: dict[str, str]) -> subprocess.Popen[str]:
    """A process that asks for Kafka and prints the folder, or why there is none."""
    script = (
        "from tests.support.kafka_files import KafkaUnavailable, kafka_jars\n"
        "try:\n"
        "    print(kafka_jars())\n"
        "except KafkaUnavailable as error:\n"
        "    print('unavailable:', error)\n"
    )
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
