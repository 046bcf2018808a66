"""Fixtures for every test: fresh databases on SQLite and on a real PostgreSQL, Kafka topics."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, Protocol

import hypothesis
import pytest

from tests.support.kafka import ExistingBroker, KafkaBroker, create_topic, delete_topic
from tests.support.kafka_files import DOWNLOAD_SECONDS, KafkaUnavailable, kafka_is_here
from tests.support.kafka_mock import MockCluster
from tests.support.kafka_shared import shared_broker
from tests.support.postgres import (
    Databases,
    ExistingServer,
    PostgresServer,
    PostgresUnavailable,
)

# How long an example takes depends on the machine; the timeout of the whole test is the limit.
hypothesis.settings.register_profile("holdfast", deadline=None)
hypothesis.settings.load_profile("holdfast")

# A shell starts what runs in the background with Ctrl-C ignored, and the commands that we start
# would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Databases]:
    """The server of this test process, or the one that HOLDFAST_TEST_POSTGRES names.

    It may not be killed: a test that wants to, opens a `PostgresServer()` of its own.
    """
    admin_url = os.environ.get("HOLDFAST_TEST_POSTGRES")
    try:
        server = ExistingServer(admin_url) if admin_url else PostgresServer(durable=False)
        with server:
            yield server
    except PostgresUnavailable as error:
        pytest.fail(
            "The tests need a PostgreSQL server and none could be had. Run `make test`, which"
            " installs one, or set HOLDFAST_TEST_POSTGRES to the URL of a database whose user may"
            f" create databases.\n{error}",
            pytrace=False,
        )


@pytest.fixture
def postgres_url(postgres_server: Databases) -> Iterator[str]:
    """The URL of an empty PostgreSQL database that no other test sees."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: the test runs once on each kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


KAFKA_FIXTURES = {"kafka_broker", "kafka_topic", "own_kafka_broker"}
KAFKA_MISSING = "no real Kafka broker"
PGBOUNCER_MISSING = "no PgBouncer"


class MakeTopic(Protocol):
    """Creates a topic of a name that no other test has, and returns the name."""

    def __call__(self, partitions: int = 1, **config: str) -> str:
        """`config` has the topic's settings, with underscores for dots."""
        ...


@pytest.fixture(scope="session")
def kafka_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a real Kafka broker: one for all processes of this run.

    It is the one that HOLDFAST_TEST_KAFKA names, if that is set. It may not be stopped: a test
    that wants to, takes `own_kafka_broker`.
    """
    bootstrap = os.environ.get("HOLDFAST_TEST_KAFKA")
    with ExitStack() as stack:
        try:
            if bootstrap:
                address = ExistingBroker(bootstrap).bootstrap
            else:
                folder = tmp_path_factory.getbasetemp()
                if hasattr(request.config, "workerinput"):
                    folder = folder.parent  # what the workers of a run have in common
                address = stack.enter_context(shared_broker(folder))
        except KafkaUnavailable as error:
            no_kafka(error)
        yield address


@pytest.fixture
def kafka_topic(kafka_broker: str) -> Iterator[MakeTopic]:
    """Makes topics on the real broker, which are deleted after the test."""
    names = []

    def make(partitions: int = 1, **config: str) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        names.append(create_topic(kafka_broker, partitions=partitions, config=settings))
        return names[-1]

    yield make
    for name in names:
        delete_topic(kafka_broker, name)


@pytest.fixture
def own_kafka_broker() -> Iterator[KafkaBroker]:
    """A real Kafka broker for this test alone, which may stop and kill it."""
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(KafkaBroker())
        except KafkaUnavailable as error:
            no_kafka(error)
        yield broker


@pytest.fixture(scope="session")
def mock_kafka() -> Iterator[MockCluster]:
    """A Kafka cluster that the client library plays within this process."""
    with MockCluster() as cluster:
        yield cluster


def no_kafka(error: KafkaUnavailable) -> NoReturn:
    """Skip the test, or let it fail where HOLDFAST_REQUIRE_KAFKA=1 forbids to skip it."""
    reason = f"{KAFKA_MISSING}: {error}"
    if os.environ.get("HOLDFAST_REQUIRE_KAFKA") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def pytest_xdist_auto_num_workers() -> int:
    """Two for each processor: half of a test's time is waiting for other processes."""
    return 2 * (os.cpu_count() or 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs the real broker, and give it time where that has to be downloaded first."""
    short_of_time = config.getoption("timeout") is None and not kafka_is_here()
    for item in items:
        if KAFKA_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")
            if short_of_time:
                item.add_marker(pytest.mark.timeout(DOWNLOAD_SECONDS + 120), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end which tests did not run for want of a program, and why."""
    missing = {KAFKA_MISSING: "real-broker tests", PGBOUNCER_MISSING: "tests with PgBouncer"}
    for report in terminalreporter.getreports("skipped"):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        for cause in [cause for cause in missing if cause in text]:
            reason = text.partition(f"{cause}: ")[2].partition("\n")[0]
            terminalreporter.write_line(f"The {missing.pop(cause)} did not run: {reason}")
