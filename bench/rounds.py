"""Runs cases in turn, so that a slow minute of the machine falls on all of them alike."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.case import Case, Database, Sample
from bench.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.support.postgres import PostgresServer


@contextmanager
def measuring(cases: Sequence[Case]) -> Iterator[Callable[[Case], Sample]]:
    """What takes one sample of any of these cases.

    Every sample has been checked: a wrong result raises `WrongResult`.
    """
    with _databases({case.database for case in cases}) as databases:
        templates = _Templates(databases)
        yield lambda case: _measure_once(case, templates, databases[case.database])


def in_turn(cases: Sequence[Case], round_: int) -> Sequence[Case]:
    """There and back: whoever comes first in one round comes last in the next."""
    return cases if round_ % 2 else cases[::-1]


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
