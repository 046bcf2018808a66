"""One PostgreSQL database for all the contract tests of a process."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.postgres import Databases


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_server: Databases) -> Iterator[str]:
    """The URL of a database that `emptied_postgres_url` empties for each test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def emptied_postgres_url(shared_postgres_url: str) -> str:
    """An empty database; making one takes longer than most tests."""
    with psycopg.connect(shared_postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return shared_postgres_url


@pytest.fixture(params=["sqlite_url", "emptied_postgres_url"])
def quick_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database: the test runs once on each kind."""
    url: str = request.getfixturevalue(request.param)
    return url
