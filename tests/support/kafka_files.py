"""Gets Apache Kafka's broker by name with Maven, once for all runs of this user."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

VERSION = "4.3.1"
JAVA = 17
"""The oldest Java on which this version of the broker runs."""
DOWNLOAD_SECONDS = 300
PACKAGES = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),  # the broker brings nothing that prints its log
)


class KafkaUnavailable(Exception):
    """No Kafka broker could be had; the message says why."""


def kafka_jars() -> Path:
    """The folder with the broker and all it needs, downloaded if it is not there yet.

    Any number of processes may ask at once: one downloads, the others wait for it. A process that
    could not have it once is told so again at once.
    """
    outcome = _try_once()
    if isinstance(outcome, KafkaUnavailable):
        raise KafkaUnavailable(*outcome.args)
    return outcome


def kafka_is_here() -> bool:
    """Whether the broker has been downloaded already."""
    return _folder().is_dir()


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock that the system takes away from a process that dies."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def _try_once() -> Path | KafkaUnavailable:
    folder = _folder()
    try:
        _require_java()
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(folder.with_name(f"{folder.name}.lock")):
                if not folder.is_dir():
                    _download(folder)
    except KafkaUnavailable as error:
        return error
    return folder


def _folder() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "holdfast" / f"kafka-{VERSION}"


def _download(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("Maven, which downloads Kafka, is missing: there is no `mvn`")
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as place:
        jars = Path(place) / "jars"
        Path(place, "pom.xml").write_text(_pom())
        command = ["mvn", "--batch-mode", "--no-transfer-progress", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(
                command,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=DOWNLOAD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            reason = f"Maven did not download Kafka {VERSION} in {DOWNLOAD_SECONDS} s"
            raise KafkaUnavailable(reason) from error
        if done.returncode != 0:
            raise KafkaUnavailable(
                f"Maven could not download Kafka {VERSION}: {_first_error(done.stdout)}"
            )
        jars.rename(folder)


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in PACKAGES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>holdfast.tests</groupId><artifactId>kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _first_error(output: str) -> str:
    errors = [line for line in output.splitlines() if line.startswith("[ERROR]")]
    return (errors or output.splitlines()[-1:] or ["it said nothing"])[0]


def _require_java() -> None:
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise KafkaUnavailable("Java is missing: there is no `java`") from error
    version = re.search(r'version "(\d+)', done.stderr)
    if version is None or int(version[1]) < JAVA:
        said = done.stderr.strip().partition("\n")[0]
        raise KafkaUnavailable(f"Kafka {VERSION} needs Java {JAVA} or later; `java` is: {said}")
