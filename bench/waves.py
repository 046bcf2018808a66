"""W2: account events of any number, of which each million is like the first.

Accounts come in waves and go. So the number of rows grows with the journal, as it does in life,
while the rows that events change at one time stay as many.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import psycopg

from bench import journal
from bench.case import Sample, WrongResult
from bench.connection import connect, is_sqlite, sqlite_path

WAVE_ACCOUNTS = 5_000
EVENTS_PER_ACCOUNT = 20

_WAVE_EVENTS = WAVE_ACCOUNTS * EVENTS_PER_ACCOUNT
_VERSION = f"1 + i % {_WAVE_EVENTS} / {WAVE_ACCOUNTS}"
_ACCOUNT = f"i / {_WAVE_EVENTS} * {WAVE_ACCOUNTS} + i % {WAVE_ACCOUNTS}"
# The factor is odd, so that no two accounts get the same number, and large, so that neighbours'
# numbers are far apart.
_NUMBER = f"({_ACCOUNT}) * 2654435761 % 4294967296"

# The databases make the events themselves, which takes a fifth of the time.
LOAD_SQL = """
INSERT INTO holdfast_event (position, stream, version, id, type, data, metadata, recorded_at)
{before}
SELECT
    i + 1 + {after}, stream, version, {id},
    CASE
        WHEN version = 1 THEN 'AccountOpened'
        WHEN i % 5 < 2 THEN 'FundsDebited'
        ELSE 'FundsCredited'
    END,
    {json_open} '{{"account_id":"' || stream || '",' || CASE
        WHEN version = 1 THEN
            '"owner":"Customer","currency":"EUR","opening_balance":' || (i % 1000)
            || ',"branch":"br-001"}}'
        ELSE
            '"amount":' || (1 + i % 9973) || ',"currency":"EUR","reference":"ref-' || {reference}
            || '","channel":"web"}}'
    END {json_close},
    '{{}}', {recorded_at}
FROM (
    SELECT
        i,
        'account-' || {name} AS stream,
        {version} AS version
    FROM {numbers}
) AS made
"""

# What the journal itself amounts to, account by account, as the database adds it up.
COMPARE_SQL = """
SELECT count(*), count(kept.account_id), (SELECT count(*) FROM account_balance)
FROM (
    SELECT stream,
           sum(CAST(coalesce(data ->> 'opening_balance', data ->> 'amount') AS bigint)
               * CASE type WHEN 'FundsDebited' THEN -1 ELSE 1 END) AS balance,
           max(version) AS version
    FROM holdfast_event
    WHERE position > {after}
    GROUP BY stream
) AS journal
LEFT JOIN account_balance AS kept
ON kept.account_id = journal.stream
   AND kept.balance = journal.balance
   AND kept.version = journal.version
"""


def load(url: str, count: int) -> None:
    """Makes the schema and fills the journal with the first `count` events of W2."""
    journal.make(url)
    fill(url, count)


def fill(url: str, count: int, *, after: int = 0) -> None:
    """Puts the first `count` events of W2 in the journal, behind the position `after`.

    Their ids are those of that position and those behind it.
    """
    if is_sqlite(url):
        with closing(sqlite3.connect(sqlite_path(url))) as connection:
            connection.execute(f"PRAGMA cache_size = {journal.CACHE_PAGES}")
            connection.execute(_sqlite_statement(count, after))
            connection.commit()
    else:
        with psycopg.connect(url) as connection:
            connection.execute(_postgres_statement(count, after).encode())
    journal.finish(url)


def _postgres_statement(count: int, after: int) -> str:
    return LOAD_SQL.format(
        before="OVERRIDING SYSTEM VALUE",
        after=after,
        id=f"CAST(lpad(to_hex(i + {after}), 32, '0') AS uuid)",
        json_open="CAST(",
        json_close="AS json)",
        reference="lpad(to_hex(i), 12, '0')",
        recorded_at="CAST('2026-01-01T00:00:00Z' AS timestamptz)",
        name=f"lpad(to_hex({_NUMBER}), 8, '0')",
        numbers=f"generate_series(CAST(0 AS bigint), {count - 1}) AS n (i)",
        version=_VERSION,
    )


def _sqlite_statement(count: int, after: int) -> str:
    return LOAD_SQL.format(
        before=f"""
            WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1})
        """,
        after=after,
        id=f"printf('00000000-0000-0000-0000-%012x', i + {after})",
        json_open="",
        json_close="",
        reference="printf('%012x', i)",
        recorded_at="'2026-01-01T00:00:00+00:00'",
        name=f"printf('%08x', {_NUMBER})",
        numbers="n",
        version=_VERSION,
    )


def check(url: str, _: Sample, *, after: int = 0) -> None:
    """Every row of `account_balance` is what the journal says, behind the position `after`."""
    with closing(connect(url)) as connection:
        found = connection.execute(COMPARE_SQL.format(after=after)).fetchone()
    accounts, right, rows = found or (0, 0, 0)
    if not accounts == right == rows:
        raise WrongResult(f"{rows} rows, {right} of them right, for {accounts} accounts")
