"""An append that commits after others with larger positions: readers wait for it, and for no more.

PostgreSQL only: SQLite has one writer, so positions appear in order. One step at a time here; many
writers at once are in test_late_commits_stress.py.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from holdfast import App
from tests.support.postgres import wait_until
from tests.world.app import PROJECTIONS, Moved, build_app
from tests.world.checks import check_all
from tests.world.progress import await_arrival

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def app(postgres_url: str) -> Iterator[App]:
    with build_app(postgres_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def connect(postgres_url: str) -> Iterator[Callable[[], Connection]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(postgres_url))


Connect = Callable[[], Connection]


def test_first_append_ever_is_waited_for(app: App, connect: Connect) -> None:
    slow, quick = connect(), connect()
    append(app, "slow", slow)
    append(app, "quick", quick)
    quick.commit()

    assert read(app) == []
    slow.commit()
    assert read(app) == [(1, "slow"), (2, "quick")]


def test_first_append_ever_is_passed_when_rolled_back(app: App, connect: Connect) -> None:
    slow, quick = connect(), connect()
    append(app, "slow", slow)
    append(app, "quick", quick)
    quick.commit()

    assert read(app) == []
    slow.rollback()
    assert read(app) == [(2, "quick")]


def test_what_precedes_the_hole_is_read(app: App, connect: Connect) -> None:
    append(app, "before")
    slow = connect()
    append(app, "slow", slow, count=2)
    append(app, "after", count=2)

    assert read(app) == [(1, "before")]
    assert read(app, after=1) == []
    slow.commit()
    assert read(app) == [(1, "before"), (2, "slow"), (3, "slow"), (4, "after"), (5, "after")]


def test_a_rolled_back_append_leaves_a_hole_that_is_passed(app: App, connect: Connect) -> None:
    append(app, "before")
    slow = connect()
    append(app, "slow", slow, count=3)
    append(app, "after")

    assert read(app) == [(1, "before")]
    slow.rollback()
    assert read(app) == [(1, "before"), (5, "after")]


def test_a_hole_behind_which_another_append_is_open(app: App, connect: Connect) -> None:
    """Old holes are passed up to the append that is still open, not held up by it."""
    append(app, "gone", gone := connect())
    append(app, "kept")
    append(app, "slow", slow := connect())
    append(app, "after")
    gone.rollback()

    assert read(app) == [(2, "kept")]
    slow.commit()
    assert read(app) == [(2, "kept"), (3, "slow"), (4, "after")]


def test_the_oldest_of_several_open_appends_decides(app: App, connect: Connect) -> None:
    append(app, "first", first := connect())
    append(app, "second", second := connect())
    append(app, "third")
    second.commit()

    assert read(app) == []
    first.commit()
    assert read(app) == [(1, "first"), (2, "second"), (3, "third")]


def test_a_second_append_in_the_same_transaction(app: App, connect: Connect) -> None:
    slow = connect()
    append(app, "slow", slow)
    append(app, "between")
    append(app, "slow-too", slow)
    append(app, "after")

    assert read(app) == []
    slow.commit()
    assert read(app) == [(1, "slow"), (2, "between"), (3, "slow-too"), (4, "after")]


def test_a_second_append_where_the_first_was_rolled_back_to_a_savepoint(
    app: App, connect: Connect
) -> None:
    """The protection of the first ends with its savepoint; the second brings its own."""
    slow = connect()
    slow.execute("SAVEPOINT before")
    append(app, "undone", slow)
    append(app, "meanwhile")
    assert read(app) == []
    slow.execute("ROLLBACK TO before")
    assert read(app) == [(2, "meanwhile")]

    append(app, "slow", slow)
    append(app, "after")
    assert read(app) == [(2, "meanwhile")]
    slow.commit()
    assert read(app) == [(2, "meanwhile"), (3, "slow"), (4, "after")]


def test_an_append_inside_a_savepoint_that_is_released(app: App, connect: Connect) -> None:
    slow = connect()
    slow.execute("SAVEPOINT within")
    append(app, "slow", slow)
    slow.execute("RELEASE within")
    append(app, "after")

    assert read(app) == []
    slow.commit()
    assert read(app) == [(1, "slow"), (2, "after")]


def test_a_savepoint_rolled_back_after_an_earlier_append(app: App, connect: Connect) -> None:
    """What the transaction took before the savepoint still holds."""
    slow = connect()
    append(app, "slow", slow)
    slow.execute("SAVEPOINT within")
    append(app, "undone", slow)
    slow.execute("ROLLBACK TO within")
    append(app, "after")

    assert read(app) == []
    append(app, "slow-too", slow)
    slow.commit()
    assert read(app) == [(1, "slow"), (3, "after"), (4, "slow-too")]


def test_an_append_inside_a_function_that_catches_an_exception(app: App, connect: Connect) -> None:
    """PL/pgSQL's exception block is a savepoint that nobody wrote."""
    slow = connect()
    slow.execute(
        """
        CREATE FUNCTION undone() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            PERFORM holdfast_append('undone', 0, false, json_build_array(json_build_object(
                'id', gen_random_uuid(), 'type', 'Moved', 'data', '{"amount": 1}',
                'metadata', '{}', 'recorded_at', now())));
            RAISE 'undone';
        EXCEPTION WHEN raise_exception THEN NULL; END $$
        """
    )
    slow.execute("SELECT undone()")
    append(app, "slow", slow)
    append(app, "after")

    assert read(app) == []
    slow.commit()
    assert read(app) == [(2, "slow"), (3, "after")]


def test_a_stranger_holds_up_nobody(app: App, connect: Connect) -> None:
    """A write transaction that appends nothing, open since before the first append."""
    stranger = connect()
    stranger.execute("CREATE TABLE business (n int)")
    append(app, "undone", undone := connect())
    append(app, "after")
    undone.rollback()

    assert read(app) == [(2, "after")]


def test_an_append_that_waits_for_its_stream_holds_up_nobody(app: App, connect: Connect) -> None:
    """It has drawn no position yet. What it waits for does hold readers up."""
    owner, waiter, observer = connect(), connect(), connect()
    append(app, "shared", owner)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(append, app, "shared", waiter)
        wait_until(lambda: is_waiting(observer, waiter), 30, "the second append to wait")
        append(app, "after")
        before_the_commit = read(app)
        owner.commit()
        waiting.result()
    assert before_the_commit == []
    assert read(app) == [(1, "shared"), (2, "after")]
    append(app, "last")
    waiter.commit()
    assert read(app) == [(1, "shared"), (2, "after"), (3, "shared"), (4, "last")]


def test_projections_follow_a_late_commit_in_order(
    app: App, connect: Connect, postgres_url: str
) -> None:
    append(app, "before")
    slow = connect()
    append(app, "shared", slow, count=3)
    append(app, "after", count=3)
    with app.running():
        for name in PROJECTIONS:
            app.wait_for(name, 1)
        assert check_all(postgres_url).positions == dict.fromkeys(PROJECTIONS, 1)
        slow.commit()
        append(app, "shared")
        await_arrival(postgres_url)
    assert check_all(postgres_url, complete=True).events == 8


def append(app: App, stream: str, connection: Connection | None = None, *, count: int = 1) -> None:
    app.journal.append(stream, [Moved(1)] * count, connection=connection)


def read(app: App, *, after: int = 0) -> list[tuple[int, str]]:
    return [(event.position, event.stream) for event in app.journal.read(after=after)]


def is_waiting(observer: Connection, connection: Connection) -> bool:
    rows = observer.execute(
        "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s",
        (connection.info.backend_pid,),
    ).fetchall()
    observer.rollback()
    return rows == [("Lock",)]
