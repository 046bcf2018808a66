"""Real Kafka brokers for the tests: one we run and may kill, or one that is there already.

`python -m tests.support.kafka` runs one until Ctrl-C, for trying things by hand.
"""

import atexit
import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_files import VERSION, KafkaUnavailable, kafka_jars
from tests.support.postgres import PORT_ATTEMPTS, PORTS, wait_until

START_SECONDS = 60
STOP_SECONDS = 30
ADMIN_SECONDS = 30.0
EXISTING_SECONDS = 5.0
NODE = 1
JAVA_OPTIONS = (
    "-Xmx320m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # a quick start is worth more than a quick hour
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",  # it leaves a file behind when killed
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class KafkaBroker:
    """A Kafka broker in a temporary folder, on a port of its own, for as long as it is open.

    It is a cluster of one node. Its address stays the same over `kill` and `restart`. A watchdog
    ends it when this process dies in any way.
    """

    def __init__(self) -> None:
        self._jars = kafka_jars()
        self._cluster = _cluster_id()
        self._ports: tuple[int, int] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-kafka-"))
        self._log = self._folder / "server.log"
        self._watchdog = _start_watchdog(self._folder)
        atexit.register(self.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers`."""
        if self._ports is None:
            raise RuntimeError("the broker has not been started")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._running().pid

    @property
    def folder(self) -> Path:
        """Where all its files are."""
        return self._folder

    def start(self) -> None:
        """Start the broker and return when it takes requests."""
        if self._process is not None:
            raise RuntimeError("the broker is running")
        tries = [self._ports] if self._ports else _pairs_of_ports()
        for ports in tries:
            if all(map(_port_is_free, ports)) and self._start_on(ports):
                self._ports = ports
                return
        raise KafkaUnavailable(f"every port tried is taken: {tries}")

    def stop(self) -> None:
        """Shut down cleanly: what it holds is flushed."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._ended()

    def kill(self) -> None:
        """End the broker at once. What it took stays: the system has it, though not the disk."""
        process = self._running()
        process.kill()
        process.wait(STOP_SECONDS)
        self._ended()

    def restart(self) -> None:
        """Start again with the same data and address: after a stop, a kill, or while running."""
        if self._process is not None:
            self.stop()
        self.start()

    def close(self) -> None:
        """End the broker and remove all that it would leave behind. May be called again."""
        atexit.unregister(self.close)
        try:
            if self._process is not None:
                self.kill()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._watchdog.returncode is None:
                self._watchdog.communicate()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    def _ended(self) -> None:
        self._process = None
        (self._folder / "pid").unlink(missing_ok=True)

    def _start_on(self, ports: tuple[int, int]) -> bool:
        """Start on these ports; False when another process has one of them."""
        (self._folder / "server.properties").write_text(_settings(ports, self._folder / "data"))
        self._format()
        self._process = self._java("kafka.Kafka", "server.properties")
        try:
            self._wait_for_answers(self._process, ports[0])
        except BaseException:
            self.kill()
            raise
        code = self._process.returncode
        if code is None:
            return True
        self._ended()
        if "Address already in use" in self._log.read_text(errors="replace"):
            return False
        raise self._unavailable(f"Kafka ended with code {code}")

    def _wait_for_answers(self, process: subprocess.Popen[bytes], port: int) -> None:
        """Return when the broker takes requests, or has ended."""
        try:
            wait_until(
                lambda: process.poll() is not None or _answers(port, self._cluster),
                START_SECONDS,
                "Kafka to take requests",
            )
        except TimeoutError as error:
            raise self._unavailable(str(error)) from error

    def _format(self) -> None:
        """Make the data folder, once."""
        if (self._folder / "data").exists():
            return
        command = ["format", "--config", "server.properties", "--cluster-id", self._cluster]
        self._process = self._java("kafka.tools.StorageTool", *command)
        try:
            code = self._process.wait(START_SECONDS)
        except BaseException:
            self.kill()
            raise
        self._ended()
        if code != 0:
            raise self._unavailable(f"Kafka's folder could not be made (code {code})")

    def _unavailable(self, what: str) -> KafkaUnavailable:
        return KafkaUnavailable(f"{what}\n{self._log.read_text(errors='replace')}")

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program of Kafka, which tells the watchdog its process id before it begins."""
        command = ["sh", "-c", 'echo $$ >pid && exec "$@"', "sh", "java", *JAVA_OPTIONS]
        command += ["-cp", f"{self._jars}/*", *arguments]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is meant for the tests
            )


class ExistingBroker:
    """A broker that somebody else runs."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        try:
            _admin(bootstrap).list_topics(timeout=EXISTING_SECONDS)
        except KafkaException as error:
            raise KafkaUnavailable(f"the given broker does not answer: {error}") from error


def create_topic(
    bootstrap: str,
    name: str | None = None,
    *,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """Create a topic and return its name, once every partition has a leader."""
    name = name or f"holdfast-test-{uuid.uuid4().hex}"
    admin = _admin(bootstrap)
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    admin.create_topics([topic])[name].result(ADMIN_SECONDS)
    wait_until(lambda: _has_leaders(admin, name, partitions), ADMIN_SECONDS, f"topic {name}")
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic; it is no error if it is not there."""
    admin = _admin(bootstrap)
    try:
        admin.delete_topics([name])[name].result(ADMIN_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def _settings(ports: tuple[int, int], data: Path) -> str:
    broker, controller = ports
    settings = {
        "process.roles": "broker,controller",
        "node.id": NODE,
        "listeners": f"BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{controller}",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # A killed broker may not come back before it is believed dead.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 250,
        # Consumers of a test come and go within seconds.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        # One node on a small machine.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "log.cleaner.dedupe.buffer.size": 8 << 20,
        # A test that waits for compaction should not have to wait for long.
        "log.cleaner.backoff.ms": 200,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _start_watchdog(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that waits for our end of a pipe to close, then clears away the broker."""
    script = """
        cat >/dev/null
        if pid=$(cat "$1/pid" 2>/dev/null); then
            kill -KILL "$pid" 2>/dev/null
            turns=0
            while kill -0 "$pid" 2>/dev/null && [ $turns -lt 300 ]; do
                sleep 0.1
                turns=$((turns + 1))
            done
        fi
        rm -rf "$1"
    """
    return subprocess.Popen(
        ["sh", "-c", script, "watchdog", str(folder)],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _cluster_id() -> str:
    """A new id, which never begins with a dash: that would look like an option."""
    first, *rest = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *rest])).decode().rstrip("=")


def _pairs_of_ports() -> list[tuple[int, int]]:
    """Some ports to try, for the broker and for its controller."""
    ports = random.sample(PORTS, 2 * PORT_ATTEMPTS)
    return list(zip(ports[::2], ports[1::2], strict=True))


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _admin(bootstrap: str) -> AdminClient:
    quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **quick})


def _answers(port: int, cluster: str) -> bool:
    """Whether a broker of this cluster takes requests on this port, those of groups included.

    The topic in which groups keep their offsets is made when the first of them is asked about:
    unless we ask, the first consumer waits for seconds.
    """
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        admin = _admin(f"127.0.0.1:{port}")
        metadata = admin.list_topics(timeout=5)
        if str(metadata.cluster_id) != cluster or NODE not in metadata.brokers:
            return False
        group = "holdfast-start"
        admin.describe_consumer_groups([group])[group].result(5)
    except (OSError, KafkaException):
        return False
    return True


def _has_leaders(admin: AdminClient, topic: str, partitions: int) -> bool:
    known = admin.list_topics(topic, timeout=ADMIN_SECONDS).topics[topic].partitions
    return len(known) == partitions and all(known[n].leader >= 0 for n in known)


def main() -> None:
    """Run a broker until Ctrl-C and print its address."""
    with KafkaBroker() as broker, suppress(KeyboardInterrupt):
        print(f"Kafka {VERSION} takes requests at {broker.bootstrap}. Ctrl-C ends it.", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
