"""The broker that the tests of Kafka use and kill must itself be beyond doubt."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.conftest import MakeTopic
from tests.support.kafka import ExistingBroker, KafkaBroker, create_topic
from tests.support.kafka_files import KafkaUnavailable
from tests.support.postgres import is_alive, wait_until

ROOT = Path(__file__).parents[2]
END_SECONDS = 30


def test_messages_and_address_survive_kill_and_restart(own_kafka_broker: KafkaBroker) -> None:
    broker = own_kafka_broker
    address = broker.bootstrap
    topic = create_topic(address, "kept", partitions=2)
    produce(address, topic, b"one")
    killed = psutil.Process(broker.pid)
    broker.kill()

    assert not is_alive(killed)
    assert not takes_connections(address)

    broker.restart()
    assert broker.bootstrap == address
    produce(address, topic, b"two")
    restarted = broker.pid
    broker.restart()

    assert broker.pid != restarted
    assert consume(address, topic, 2) == {b"one", b"two"}


def test_a_port_that_was_taken_is_named_and_close_leaves_nothing(
    own_kafka_broker: KafkaBroker,
) -> None:
    broker = own_kafka_broker
    stopped, folder = psutil.Process(broker.pid), broker.folder
    host, _, port = broker.bootstrap.partition(":")
    broker.stop()
    assert not is_alive(stopped)
    with (
        socket.create_server((host, int(port))),
        pytest.raises(KafkaUnavailable, match=f"taken.*{port}"),
    ):
        broker.start()

    broker.start()
    running = psutil.Process(broker.pid)
    assert (folder / "data").is_dir()
    broker.close()
    assert not is_alive(running)
    assert not folder.exists()
    broker.close()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_the_command_runs_a_broker_which_ends_with_it(
    kafka_broker: str, end: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.kafka"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        said = command.stdout.readline()
        (address,) = (word.strip(".") for word in said.split() if ":" in word)
        assert address != kafka_broker
        broker = broker_below(psutil.Process(command.pid))
        folder = Path(broker.cwd())
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=10)
        command.send_signal(end)

    wait_until(lambda: not folder.exists(), END_SECONDS, "the broker to be cleared away")
    assert not is_alive(broker)
    assert not takes_connections(address)


def test_topics_are_as_asked_and_messages_get_through(
    kafka_broker: str, kafka_topic: MakeTopic
) -> None:
    topic = kafka_topic(partitions=3, retention_ms="1234567")
    produce(kafka_broker, topic, b"hello")

    admin = AdminClient({"bootstrap.servers": kafka_broker})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    assert consume(kafka_broker, topic, 1) == {b"hello"}
    assert topic != kafka_topic()


def test_an_address_without_a_broker_is_no_broker() -> None:
    with pytest.raises(KafkaUnavailable, match="does not answer"):
        ExistingBroker("127.0.0.1:1")


def test_the_broker_is_shared_until_the_last_user_is_gone(
    kafka_broker: str, tmp_path: Path
) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.support.kafka_shared import shared_broker\n"
        "with shared_broker(Path(sys.argv[1])) as address:\n"
        "    print(address, flush=True)\n"
        "    input()\n"
    )
    with ExitStack() as stack:
        users = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script, str(tmp_path)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(2)
        ]
        addresses = {user.stdout.readline().strip() for user in users if user.stdout}
        (address,) = addresses
        assert address != kafka_broker

        for user in users:
            AdminClient({"bootstrap.servers": address}).list_topics(timeout=10)
            user.kill()  # the first of them or the second has started the broker
            user.wait()

    wait_until(lambda: not takes_connections(address), END_SECONDS, "the broker to end")


def test_the_workers_of_a_run_share_one_broker(kafka_broker: str, tmp_path: Path) -> None:
    test = (
        "import os\n"
        "from pathlib import Path\n"
        "def test(kafka_broker, kafka_topic):\n"
        "    kafka_topic()\n"
        f"    Path({str(tmp_path)!r}, str(os.getpid())).write_text(kafka_broker)\n"
    )
    done = run_pytest(tmp_path, test, "-n", "2", "--dist", "each")

    assert done.returncode == 0, done.stdout
    addresses = [file.read_text() for file in tmp_path.iterdir() if file.name.isdigit()]
    assert len(addresses) == 2
    assert len(set(addresses)) == 1
    assert addresses[0] != kafka_broker
    wait_until(lambda: not takes_connections(addresses[0]), END_SECONDS, "the broker to end")


def test_without_java_the_tests_are_skipped_with_a_reason(tmp_path: Path) -> None:
    test = "def test_shared(kafka_topic): ...\ndef test_own(own_kafka_broker): ...\n"
    done = run_pytest(tmp_path, test, "-n", "2", environment=without_java(tmp_path))

    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    reason = "The real-broker tests did not run: Java is missing: there is no `java`"
    assert done.stdout.count(reason) == 1


def test_where_the_broker_is_required_its_lack_is_a_failure(tmp_path: Path) -> None:
    test = "def test_shared(kafka_topic): ...\ndef test_own(own_kafka_broker): ...\n"
    environment = without_java(tmp_path) | {"HOLDFAST_REQUIRE_KAFKA": "1"}
    done = run_pytest(tmp_path, test, "-m", "kafka", environment=environment)

    assert done.returncode == 1, done.stdout
    assert "2 errors" in done.stdout
    assert "Java is missing" in done.stdout


def run_pytest(
    folder: Path, test: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one test module with our fixtures, in a run of its own."""
    module = folder / "test_generated.py"
    module.write_text(test)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += [f"--basetemp={folder / 'run'}", *arguments, str(module)]
    given = environment or dict(os.environ)
    given = {name: value for name, value in given.items() if not name.startswith("PYTEST_")}
    given.pop("HOLDFAST_TEST_KAFKA", None)
    return subprocess.run(
        command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=100, check=False
    )


def without_java(folder: Path) -> dict[str, str]:
    """An environment in which there is a shell and nothing else."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    environment = os.environ | {"PATH": str(programs)}
    environment.pop("HOLDFAST_REQUIRE_KAFKA", None)
    return environment


def produce(address: str, topic: str, value: bytes) -> None:
    """Send a message and return when the broker has it."""
    producer = Producer({"bootstrap.servers": address})
    errors: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def consume(address: str, topic: str, count: int) -> set[bytes | None]:
    """The values of the first messages of a topic, read in a group."""
    group = {"group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest"}
    pace = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 300}
    consumer = Consumer({"bootstrap.servers": address, **group, **pace})
    consumer.subscribe([topic])
    messages = [consumer.poll(30) for _ in range(count)]
    consumer.close()
    return {message.value() for message in messages if message is not None}


def takes_connections(address: str) -> bool:
    """Whether anybody listens there."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def broker_below(process: psutil.Process) -> psutil.Process:
    """The broker that this process has started."""
    (broker,) = (child for child in process.children() if child.name() == "java")
    return broker
