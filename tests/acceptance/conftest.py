"""A folder with a bank's module for each test, on SQLite, or on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Place


@pytest.fixture
def place(tmp_path: Path, sqlite_url: str) -> Iterator[Place]:
    """On SQLite, for what does not depend on the database."""
    place = Place(tmp_path / "place", sqlite_url)
    yield place
    place.close()


@pytest.fixture
def any_place(tmp_path: Path, store_url: str) -> Iterator[Place]:
    """Once on each database."""
    place = Place(tmp_path / "place", store_url)
    yield place
    place.close()
