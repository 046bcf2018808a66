"""Runs cases round by round, so that a slow minute of the machine falls on all of them alike."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.case import Case, Database, Sample
from bench.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.support.postgres import PostgresServer


@dataclass(frozen=True, slots=True)
class Step:
    """A case about to be measured for the `round`th time."""

    case: Case
    round: int


def measure(
    cases: Sequence[Case], rounds: int, *, starting: Callable[[Step], None]
) -> Iterator[tuple[Step, Sample]]:
    """Round 1 of every case, then round 2 of every case, and so on: each sample as it is taken.

    Every sample has been checked: a wrong result raises `WrongResult`.
    """
    with _databases({case.database for case in cases}) as databases:
        templates = _Templates(databases)
        for round_ in range(1, rounds + 1):
            # There and back: whoever comes first in one round comes last in the next.
            for case in cases if round_ % 2 else reversed(cases):
                step = Step(case, round_)
                starting(step)
                yield step, _measure_once(case, templates, databases[case.database])


def _measure_once(case: Case, templates: _Templates, databases: Databases) -> Sample:
    try:
        url = databases.copy(templates.url(case))
        try:
            sample = _in_fresh_process(case.run, url)
            case.check(url, sample)
        finally:
            databases.drop(url)
    except Exception as error:
        error.add_note(f"This was the case {case.name}.")
        raise
    return sample


def _in_fresh_process(run: Callable[[str], Sample], url: str) -> Sample:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, url).result()


class _Templates:
    """What cases load is loaded once; every round works on a copy of the same bytes."""

    def __init__(self, databases: dict[Database, Databases]) -> None:
        self._databases = databases
        self._urls: dict[tuple[Database, Callable[[str, int], None], int], str] = {}

    def url(self, case: Case) -> str:
        key = case.database, case.load, case.loaded_events
        if key not in self._urls:
            url = self._databases[case.database].create()
            case.load(url, case.loaded_events)
            self._urls[key] = url
        return self._urls[key]


@contextmanager
def _databases(wanted: set[Database]) -> Iterator[dict[Database, Databases]]:
    """A durable server, if PostgreSQL is wanted at all, and a folder for SQLite's files."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))
        databases: dict[Database, Databases] = {Database.SQLITE: SqliteDatabases(Path(folder))}
        if Database.POSTGRES in wanted:
            server = stack.enter_context(PostgresServer(durable=True))
            databases[Database.POSTGRES] = PostgresDatabases(server)
        yield databases
