"""Fixtures for every test: fresh databases on SQLite and on a real PostgreSQL."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

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
