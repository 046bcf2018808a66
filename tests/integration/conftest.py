"""One PostgreSQL database for all the contract tests of a process."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import Databases


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_server: Databases) -> Iterator[str]:
    """The URL of a database that each test empties before use."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)
