"""Two transactions that append the same event id to different streams, at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest

from holdfast import App, AppendError, NewEvent
from tests.support.postgres import wait_until
from tests.support.sql import execute


def test_the_later_one_is_refused(postgres_url: str) -> None:
    with App(postgres_url) as app, ThreadPoolExecutor() as threads:
        app.migrate()
        event = NewEvent({}, type="Paid", id=uuid4())
        with psycopg.connect(postgres_url) as first:
            app.journal.append("a", [event], connection=first)
            second = threads.submit(app.journal.append, "b", [event])
            wait_until(lambda: _somebody_waits(postgres_url), 60, "the second append to wait")
            first.commit()
        with pytest.raises(AppendError, match="are in the journal already"):
            second.result()
        assert [event.stream for event in app.journal.read()] == ["a"]


def _somebody_waits(url: str) -> bool:
    return bool(execute(url, "SELECT 1 FROM pg_locks WHERE NOT granted"))
