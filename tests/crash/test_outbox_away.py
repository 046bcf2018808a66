"""A database that is away is nobody's failure, however many threads meet it."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from holdfast import App, Event, Poll, Projection, Tx, on
from holdfast.runtime.signals import Failed, PollFailed, PollRecovered, Signal
from tests.contracts.samples import Counted, fetch
from tests.support.postgres import PostgresServer, wait_until

EXECUTORS = 8
POLLS = 4
"""Failed polls of the outage. As many from each executor would stop the projection."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def test_an_outage_is_one_failure_for_all_executors(server: PostgresServer) -> None:
    signals: list[Signal] = []

    def count(kind: type) -> int:
        return sum(isinstance(signal, kind) for signal in signals)

    with App(server.create_database()) as app:
        poll = Poll(max_consecutive_failures=2 * POLLS)

        @app.projection(delivery="outbox", concurrency=EXECUTORS, poll=poll)
        class Sums(Projection):
            tables: ClassVar = {"sums": "CREATE TABLE sums (n bigint)"}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                tx.execute("INSERT INTO sums VALUES (%s)", (event.data.n,))

        app.listen(signals.append)
        for n in range(20):
            app.journal.append(str(n), [Counted(n)])
        with app.running() as running:
            wait_until(lambda: not app.queue.list(), 30, "the first events")
            server.stop()
            wait_until(lambda: count(PollFailed) >= POLLS or bool(running.faulted), 30, "polls")
            assert not running.faulted
            server.restart()
            wait_until(lambda: count(PollRecovered) > 0, 30, "the end of the outage")
            for n in range(20, 40):
                app.journal.append(str(n), [Counted(n)])
            wait_until(lambda: not app.queue.list(), 30, "the rest")
            assert not running.faulted
        assert not count(Failed)
        assert fetch(app, "SELECT n FROM sums ORDER BY n") == [(n,) for n in range(40)]
