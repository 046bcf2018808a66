"""holdfast's append, and the statements its locks are measured against.

The statements are sent by pgbench: on two processors a client in Python takes half of the machine
and hides what a lock costs. What a user's code gets is the case `journal`.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg

from bench import append, journal, pgbench
from bench.append import EVENTS_PER_STREAM, PAYLOAD, Turns, Writing
from bench.case import Case, Sample, Scale
from bench.cases.holdfast import FundsCredited
from holdfast import App
from holdfast.sql.queries import query

APPEND = query("append", "postgres")
# The server draws the ids, for pgbench has no means to; it costs every case the same.
# The space after each colon keeps pgbench from taking a value for a variable.
EVENTS = f"""(
    SELECT json_agg(json_build_object(
        'id', gen_random_uuid(), 'type', 'FundsCredited', 'data', '{json.dumps(PAYLOAD)}',
        'metadata', '{{}}', 'recorded_at', now()
    ))
    FROM generate_series(1, :batch)
)"""


FOR_STREAM = r"PERFORM pg_advisory_xact_lock\(.*?;"
FOR_READERS = r"IF coalesce\(current_setting.*?END IF;"
LOCKS = {
    "append_bare": {FOR_READERS: ""},
    "append_exclusive": {FOR_READERS: "", FOR_STREAM: "PERFORM pg_advisory_xact_lock(77);"},
}
"""What holdfast_append is measured against: it has no lock for readers, or one for all writers."""


def cases(scale: Scale) -> list[Case]:
    return [
        *append.cases(
            "journal", scale, run=append_to_journal, load=journal.load, table="holdfast_event"
        ),
        *_cases("protected", scale, function="holdfast_append", table="holdfast_event"),
        *_cases("bare", scale, function="bench.append_bare", table="bench.event"),
        *_cases("exclusive", scale, function="bench.append_exclusive", table="bench.event"),
    ]


def _cases(name: str, scale: Scale, *, function: str, table: str) -> list[Case]:
    run = partial(append_by_statement, program=pgbench.installed(), function=function)
    return append.cases(name, scale, run=run, load=load_with_baselines, table=table)


def append_to_journal(url: str, *, writing: Writing) -> Sample:
    """`journal.append`, the way a user's code goes."""
    return append.write_together(url, write=_write_to_journal, writing=writing)


def append_by_statement(url: str, *, program: Path, function: str, writing: Writing) -> Sample:
    """holdfast's own append statement, with the function named instead of its own."""
    statement = APPEND.replace("holdfast_append", function).replace(":events", EVENTS)
    lines = [rf"\set batch {writing.batch}", r"\set check_ids false"]
    lines += [r"\set stream random(1, 9223372036854775806)"]
    for version in range(0, EVENTS_PER_STREAM, writing.batch):
        lines += [rf"\set expected {version}", f"{statement};"]
    return pgbench.run(
        program,
        url,
        "\n".join(lines),
        clients=writing.writers,
        seconds=writing.seconds,
        events_per_script=EVENTS_PER_STREAM,
    )


def load_with_baselines(url: str, count: int) -> None:
    """An empty journal, and the baselines' own schema beside it."""
    journal.load(url, count)
    with psycopg.connect(url) as connection:
        (row,) = connection.execute("SELECT pg_get_functiondef('holdfast_append'::regproc)")
        connection.execute("CREATE SCHEMA bench")
        connection.execute("CREATE TABLE bench.event (LIKE holdfast_event INCLUDING ALL)")
        for name, locks in LOCKS.items():
            connection.execute(_baseline(row[0], name=name, locks=locks).encode())


def _baseline(definition: str, *, name: str, locks: dict[str, str]) -> str:
    """holdfast_append under another name, on a table beside the journal, with other locks."""
    for statement, instead in locks.items():
        definition, found = re.subn(statement, instead, definition, flags=re.DOTALL)
        if found != 1:
            raise RuntimeError(f"holdfast_append has changed: {statement!r} is in it {found} times")
    return definition.replace("public.holdfast_append", f"bench.{name}").replace(
        "holdfast_event", "bench.event"
    )


def _write_to_journal(url: str, turns: Turns) -> None:
    with closing(App(url)) as app:
        for stream, version in turns:
            app.journal.append(
                str(stream),
                [FundsCredited(**PAYLOAD) for _ in range(turns.batch)],
                expected_version=version,
            )
