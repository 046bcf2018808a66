"""One claim on PostgreSQL: whether it takes longer when much waits that is not claimed."""

from __future__ import annotations

import json
import time
from contextlib import closing
from functools import partial
from statistics import median
from typing import LiteralString

import psycopg

from bench.append import PAYLOAD
from bench.case import Case, Database, Sample, Scale, WrongResult
from bench.cases.holdfast import handlers_app
from bench.connection import connect
from holdfast.clock import SystemClock
from holdfast.sql.outbox.claims import SqlClaims
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.store.session import SqlSession
from holdfast.sql.url import PostgresUrl, parse_url

FEW_ROWS = 1_000
ROWS_PER_LANE = 5
ASKED_LANES = 100
"""How many lanes a claim asks for."""
OPEN_LANES = 50
"""So many are due where the others are closed: fewer than asked for, so that it looks for more."""
WARM_UP_CLAIMS = 10
CLAIMS = 50

# Past the append, and with the events of the heads only, which are all that a claim reads.
LOAD_SQL: tuple[LiteralString, ...] = (
    """
    INSERT INTO holdfast_event (position, stream, version, id, type, data, metadata, recorded_at)
    OVERRIDING SYSTEM VALUE
    SELECT
        n, 'account-' || lpad(CAST(n AS text), 7, '0'), 1, CAST(lpad(to_hex(n), 32, '0') AS uuid),
        'FundsCredited', CAST(%(data)s AS json), '{}', now()
    FROM generate_series(1, %(lanes)s) AS n
    """,
    """
    INSERT INTO holdfast_queue (
        projection, feed, lane, position, stream, version, event_id, event_type, data, metadata,
        recorded_at, status, next_attempt_at, created_at, updated_at
    )
    SELECT
        'account_balance', 'journal', s.stream, n.position, s.stream, n.version,
        CAST(lpad(to_hex(n.position), 32, '0') AS uuid), 'FundsCredited', '', '', now(), s.status,
        CASE s.status WHEN 'failed' THEN now() + interval '1 day' END, now(), now()
    FROM (
        SELECT r AS position, 1 + mod(r - 1, %(lanes)s) AS lane, 1 + (r - 1) / %(lanes)s AS version
        FROM generate_series(1, %(lanes)s * %(rows_per_lane)s) AS r
    ) AS n
    CROSS JOIN LATERAL (
        SELECT
            'account-' || lpad(CAST(n.lane AS text), 7, '0') AS stream,
            CASE
                WHEN n.version > 1 OR n.lane <= %(open)s THEN 'pending'
                WHEN mod(n.lane, 2) = 0 THEN 'dead'
                ELSE 'failed'
            END AS status
    ) AS s
    """,
    """
    INSERT INTO holdfast_lane (projection, feed, lane, events, due_at)
    SELECT
        q.projection, q.feed, q.lane, %(rows_per_lane)s,
        CASE q.status WHEN 'pending' THEN now() WHEN 'failed' THEN q.next_attempt_at END
    FROM holdfast_queue AS q WHERE q.version = 1
    """,
    "VACUUM ANALYZE",
)


def cases(scale: Scale) -> list[Case]:
    return [
        Case(
            name=f"claim/{group}/{name}",
            database=Database.POSTGRES,
            loaded_events=rows,
            load=load,
            run=partial(run, lanes=lanes),
            check=check,
        )
        for group, load, lanes in (
            ("due", load_due, ASKED_LANES),
            ("closed", load_closed, OPEN_LANES),
        )
        for name, rows in (("few", FEW_ROWS), ("many", scale.claim_rows))
    ]


def run(url: str, *, lanes: int) -> Sample:
    """Claims lanes and gives them back, again and again; only the claims are timed.

    The sample is so many claims of median length.
    """
    parsed = parse_url(url)
    assert isinstance(parsed, PostgresUrl)
    cpu_seconds, seconds = 0.0, []
    with (
        closing(PostgresDatabase(parsed)) as database,
        closing(SqlSession(database)) as session,
        closing(handlers_app(url, delivery="outbox")) as app,
    ):
        definition = app._catalog.find("account_balance")
        claims = SqlClaims(session, definition, clock=SystemClock())
        for number in range(WARM_UP_CLAIMS + CLAIMS):
            cpu = time.process_time()
            seconds.append(_claim(claims, str(number), lanes=lanes))
            cpu_seconds += time.process_time() - cpu
    timed = seconds[WARM_UP_CLAIMS:]
    return Sample(events=CLAIMS, seconds=CLAIMS * median(timed), cpu_seconds=cpu_seconds)


def load_due(url: str, rows: int) -> None:
    """All lanes are due."""
    _load(url, rows, due_lanes=rows)


def load_closed(url: str, rows: int) -> None:
    """Some lanes are due; of all others, half wait for a person, and half for tomorrow."""
    _load(url, rows, due_lanes=OPEN_LANES)


def check(url: str, _: Sample) -> None:
    """Everything waits as it did before, and nothing is claimed."""
    with closing(connect(url)) as connection:
        found = connection.execute(
            "SELECT count(*) FILTER (WHERE q.status = 'processing'),"
            " (SELECT sum(events) FROM holdfast_lane) - count(*),"
            " (SELECT count(token) FROM holdfast_lane)"
            " FROM holdfast_queue AS q"
        ).fetchone()
    if found != (0, 0, 0):
        raise WrongResult(f"claimed or uncounted items, claimed lanes: {found}, not 0")


def _claim(claims: SqlClaims, token: str, *, lanes: int) -> float:
    started = time.perf_counter()
    taken = claims.claim(token, lanes=ASKED_LANES, again=0, items=1)
    seconds = time.perf_counter() - started
    if len(taken) != lanes or any(len(claim.items) != 1 for claim in taken):
        raise WrongResult(f"{len(taken)} lanes were claimed, and should {lanes}")
    with claims._connection.transaction():
        claims.unclaim([claim.head.id for claim in taken])
        claims.release(token, dict.fromkeys([claim.lane for claim in taken], 0))
    return seconds


def _load(url: str, rows: int, *, due_lanes: int) -> None:
    with closing(handlers_app(url, delivery="outbox")) as app:
        app.migrate()
    values = {
        "lanes": rows // ROWS_PER_LANE,
        "rows_per_lane": ROWS_PER_LANE,
        "open": due_lanes,
        "data": json.dumps(PAYLOAD),
    }
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        for statement in LOAD_SQL:
            connection.execute(statement, values)
