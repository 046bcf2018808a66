"""What is looked for in the queue is found by an index.

On PostgreSQL also before it has statistics: after a backfill it has none.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from holdfast import App, Event, Projection, Tx, on
from holdfast.sql.queries import pyformat, query
from tests.support.postgres import Databases

LANES = 10_000
CLAIMED = [f"lane-{n}" for n in range(0, LANES, 200)]
WHOSE = {"projection": "slow", "feed": "journal", "token": "token", "limit": 10}

FILL: tuple[LiteralString, ...] = (
    "ALTER TABLE holdfast_queue SET (autovacuum_enabled = false)",
    "ALTER TABLE holdfast_lane SET (autovacuum_enabled = false)",
    """
    INSERT INTO holdfast_queue (
        projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
        recorded_at, status, created_at, updated_at
    )
    SELECT
        'slow', 'journal', 'lane-' || n %% %(lanes)s, n, 'lane-' || n %% %(lanes)s, n,
        gen_random_uuid(), 'Happened', '', '', now(), 'pending', now(), now()
    FROM generate_series(1, 3 * %(lanes)s) AS n
    """,
    """
    INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
    SELECT 'slow', 'journal', 'lane-' || n, 3, now() FROM generate_series(0, %(lanes)s - 1) AS n
    """,
)


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("claim_lanes", {"lease_seconds": 30.0, "limit": len(CLAIMED), "again": 4}),
        ("claimed_items", {"lanes": json.dumps(CLAIMED)}),
        ("lock_claims", {"lanes": json.dumps(CLAIMED)}),
        ("open_finished_lanes", {"lanes": json.dumps([{"lane": n, "gone": 1} for n in CLAIMED])}),
        ("release_claims", {"lanes": json.dumps([{"lane": n, "gone": 1} for n in CLAIMED])}),
    ],
)
def test_a_claim_does_not_look_at_other_lanes(
    postgres_url: str, statement: str, names: dict[str, Any]
) -> None:
    with App(postgres_url) as app:

        @app.projection(delivery="outbox")
        class Slow(Projection):
            @on("Happened")
            def happened(self, event: Event[Any], tx: Tx) -> None: ...

        app.migrate()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for filling in FILL:
            connection.execute(filling, {"lanes": LANES})
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "UPDATE holdfast_lane SET token = 'token' WHERE lane = ANY (%s)", (CLAIMED,)
        )
        sql = "EXPLAIN (ANALYZE, FORMAT JSON) " + pyformat(query(statement, "postgres"))
        (((plan,),),) = connection.execute(sql.encode(), WHOSE | names).fetchall()
    assert looked_at(plan) <= 10 * len(CLAIMED)


WAITING = 10_000
"""So many wait in one lane of a topic, and as many were resolved."""

FOREIGN = {
    "projection": "slow",
    "feed": "topic[0]",
    "lane": "long",
    "stream": "stream-5000",
    "version": 5_000,
    "even_early": True,
    "limit": 10,
}
FOUND = {
    "is_resolved": 1,
    "lane_heads_by_version": 1,
    "lane_items_by_version": 10,
    "undecoded_items": 1,
    "waiting_versions": 1,
    "waits_before": 1,
}
"""How many rows each statement finds."""

QUEUED = """
    INSERT INTO holdfast_queue (
        projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
        recorded_at, status, created_at, updated_at
    )
    VALUES (
        'slow', 'topic[0]', ?, ?, ?, ?, ?, ?, 'null', '{}',
        '2026-01-01 00:00:00+00:00', ?, '2026-01-01', '2026-01-01'
    )
"""
LANE = """
    INSERT INTO holdfast_lane (projection, feed, lane, events)
    VALUES ('slow', 'topic[0]', 'long', ?)
"""


def queued() -> Iterator[tuple[Any, ...]]:
    """The versions that wait go the other way than the positions."""
    for n in range(1, WAITING + 1):
        kind = "holdfast.undecodable" if n == 1 else "Happened"
        id_ = f"00000000-0000-0000-0000-{n:012}"
        yield "long", n, "long", WAITING - n, id_, kind, "pending"
        yield f"stream-{n}", WAITING + n, f"stream-{n}", n, id_, "Happened", "resolved"


@pytest.fixture(scope="module", params=["at once", "analysed"])
def postgres_plan(
    request: pytest.FixtureRequest, postgres_server: Databases
) -> Iterator[Callable[[str], tuple[int, int]]]:
    url = postgres_server.create_database()
    with App(url) as app:
        app.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE holdfast_queue SET (autovacuum_enabled = false)")
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(QUEUED.replace("?", "%s").encode(), queued())
            cursor.execute(LANE.replace("?", "%s").encode(), (WAITING,))
        if request.param == "analysed":
            connection.execute("ANALYZE")

        def plan(statement: str) -> tuple[int, int]:
            sql = pyformat(query(statement, "postgres"))
            found = connection.execute(sql.encode(), FOREIGN).fetchall()
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}"
            (((explained,),),) = connection.execute(explain.encode(), FOREIGN).fetchall()
            return len(found), looked_at(explained)

        yield plan
    postgres_server.drop_database(url)


@pytest.mark.parametrize("statement", FOUND)
def test_postgres_does_not_go_through_a_lane(
    postgres_plan: Callable[[str], tuple[int, int]], statement: str
) -> None:
    found, looked_at = postgres_plan(statement)
    assert found == FOUND[statement]
    assert looked_at <= 3 * found


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "queue.db"
    with App(f"sqlite:///{path}") as app:
        app.migrate()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(QUEUED, queued())
        connection.execute(LANE, (WAITING,))
    return path


@pytest.mark.parametrize("statement", FOUND)
def test_sqlite_does_not_go_through_a_lane(sqlite_file: Path, statement: str) -> None:
    """Counted are the steps of its machine: a row that is only looked at costs several."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.set_progress_handler(step, 1)
        found = connection.execute(query(statement, "sqlite"), FOREIGN).fetchall()
    assert len(found) == FOUND[statement]
    assert steps < WAITING


def looked_at(plan: dict[str, Any]) -> int:
    """How many rows of the queue and its lanes a statement has seen."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan["Plan"])
        if node.get("Relation Name") in ("holdfast_lane", "holdfast_queue")
    )


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
