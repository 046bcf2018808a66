"""Only who may write an SQLite database may open the files that its processes lock."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.sql.sqlite.leases import FileLeases
from holdfast.sql.sqlite.write_queue import WriteQueue


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("of_database", "expected"), [(0o644, 0o600), (0o600, 0o600), (0o664, 0o660), (0o666, 0o666)]
)
def test_who_may_lock(tmp_path: Path, of_database: int, expected: int) -> None:
    database = tmp_path / "bank.db"
    database.touch()
    database.chmod(of_database)
    leases, queue = FileLeases(database), WriteQueue(database)
    try:
        assert leases.acquire(1) is not None
        with queue.passing(time.monotonic() + 60):
            beside = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        leases.close()
        queue.close()
    del beside["bank.db"]
    assert beside == {"bank.db-lease-1": expected, "bank.db-turn": expected}
