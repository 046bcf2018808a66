"""Sharing a database with another holdfast, and with marks of the application's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psycopg

from holdfast import App, Event, TableProjection, on
from tests.support.sql import execute


@dataclass
class Counted:
    pass


@dataclass
class Count:
    stream: str
    n: int = 0


class Counts(TableProjection[Count]):
    @on(Counted)
    def counted(self, row: Count, event: Event[Counted]) -> None:
        row.n += 1


def test_two_schemas_of_one_database_don_t_meet(postgres_url: str) -> None:
    execute(postgres_url, "CREATE SCHEMA other")
    other_url = f"{postgres_url}?options=-csearch_path%3Dother"
    with App(postgres_url) as app, App(other_url) as other:
        for one in (app, other):
            one.projection(Counts)
            one.migrate()
        with (
            psycopg.connect(other_url) as slow,
            app.running(),
        ):
            # Neither the other's lease nor its open append, of lower positions, holds this one up.
            other.journal.append("slow", [Counted()], connection=slow)
            with psycopg.connect(postgres_url) as rolled_back:
                app.journal.append("gone", [Counted()], connection=rolled_back)
                rolled_back.rollback()
            app.wait_for(Counts, app.journal.append("a", [Counted()]).position, timeout_seconds=60)
            slow.commit()
            other.catch_up(timeout_seconds=60)
            assert other.depose(Counts) == 0
            app.wait_for(Counts, app.journal.append("a", [Counted()]).position, timeout_seconds=60)
    assert execute(postgres_url, "SELECT stream, n FROM counts") == [("a", 2)]
    assert execute(postgres_url, "SELECT stream, n FROM other.counts") == [("slow", 1)]


def test_the_user_version_of_a_sqlite_file_is_the_application_s(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    execute(url, "PRAGMA user_version = 7")
    with App(url) as app:
        app.projection(Counts)
        app.journal.append("a", [Counted()])
        app.catch_up(timeout_seconds=60)
    assert execute(url, "PRAGMA user_version") == [(7,)]
    assert execute(url, "SELECT stream, n FROM counts") == [("a", 1)]


def test_a_listener_that_raises_stops_nobody(store_url: str) -> None:
    heard = []

    def listen(signal: object) -> None:
        heard.append(signal)
        raise RuntimeError("not my day")

    with App(store_url) as app:
        app.listen(listen)
        app.projection(Counts)
        app.journal.append("a", [Counted()])
        app.catch_up(timeout_seconds=60)
    assert heard
    assert execute(store_url, "SELECT stream, n FROM counts") == [("a", 1)]
