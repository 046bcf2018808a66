"""PostgreSQL finds lanes by its indexes before it has statistics: after a backfill it has none."""

import json
from typing import Any, LiteralString

import psycopg
import pytest

from holdfast import App, Event, Projection, Tx, on
from holdfast.sql.queries import pyformat, query

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
        ("claim_lanes", {"lease_seconds": 30.0, "limit": len(CLAIMED)}),
        ("claimed_items", {"lanes": json.dumps(CLAIMED)}),
        ("hold_claims", {"lanes": json.dumps(CLAIMED)}),
        ("close_claims", {"lanes": json.dumps([{"lane": n, "gone": 1} for n in CLAIMED])}),
        ("settle_claims", {"lanes": json.dumps([{"lane": n, "gone": 1} for n in CLAIMED])}),
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
    looked_at = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan["Plan"])
        if node.get("Relation Name") in ("holdfast_lane", "holdfast_queue")
    )
    assert looked_at <= 10 * len(CLAIMED)


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]
