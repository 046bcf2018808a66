"""What several processes on one database promise each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from holdfast.app import App
from holdfast.errors import ConfigError, ProjectionFaulted, SchemaError
from holdfast.model.event import Event
from holdfast.model.projection import TableProjection, on
from holdfast.sql.migrations import record_version
from tests.contracts.samples import (
    SUMS,
    WAIT_SECONDS,
    Counted,
    Sum,
    Sums,
    concurrently,
    fetch,
    status_of,
)

PROCESSES = 4
APPS = 6
MIGRATE = "import sys, holdfast; print(holdfast.App(sys.argv[1]).migrate())"


@dataclass
class Text:
    """The same table as Sum's, with another type."""

    stream: str
    total: str = ""


class SharingContract:
    """Needs fixtures `url`, of an empty database that processes can share, and `open_app`.

    `open_app` opens another App on this database, with settings of App, and closes it at the end.
    """

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def open_app(self) -> Callable[..., App]:
        raise NotImplementedError

    def test_many_processes_migrate_an_empty_database(self, url: str) -> None:
        command = [sys.executable, "-c", MIGRATE, url]
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]
        ended = [process.communicate(timeout=WAIT_SECONDS) for process in running]
        assert [err for _, err in ended] == [""] * PROCESSES
        *others, first = sorted(int(out) for out, _ in ended)
        assert others == [0] * (PROCESSES - 1)
        assert first > 0

    def test_many_apps_begin_on_an_empty_database(self, open_app: Callable[..., App]) -> None:
        apps = [open_app() for _ in range(APPS)]
        concurrently(APPS, lambda n: apps[n].journal.append("a", [Counted(n)]))
        assert sorted(e.data["n"] for e in open_app().journal.read()) == list(range(APPS))
        assert [app.migrate() for app in apps] == [0] * APPS

    def test_a_newer_schema_is_refused(self, open_app: Callable[..., App]) -> None:
        app = open_app()
        app.projection(Sums)
        app.journal.append("a", [Counted(1)])
        with app._database.writing() as connection:
            record_version(connection, 99)
        for settings in ({}, {"auto_migrate": False}):
            later = open_app(**settings)
            later.projection(Sums)
            for use in (later.migrate, later.journal.head, later.status, later.catch_up):
                with pytest.raises(SchemaError, match=r"schema 99.*newer holdfast"):
                    use()

    def test_without_migrating_it_says_what_to_do(self, open_app: Callable[..., App]) -> None:
        app = open_app(auto_migrate=False)
        app.projection(Sums)
        for use in (app.journal.head, app.status, app.catch_up):
            with pytest.raises(SchemaError, match="run holdfast migrate"):
                use()
        with pytest.raises(SchemaError, match="run holdfast migrate"):
            app.journal.append("a", [Counted(1)])
        assert app.migrate() > 0
        app.journal.append("a", [Counted(1)])
        assert app.journal.head() == 1

    def test_a_table_of_somebody_else_is_left_alone(self, open_app: Callable[..., App]) -> None:
        app = open_app()
        with app._database.writing() as connection:
            connection.script("CREATE TABLE holdfast_event (mine integer)")
        for use in (app.migrate, app.journal.head):
            with pytest.raises(ConfigError, match=r"holdfast_event .* not holdfast's"):
                use()

    def test_catching_up_while_another_runs_it(self, open_app: Callable[..., App]) -> None:
        worker, other = open_app(), open_app()
        for app in (worker, other):
            app.projection(Sums)
        first = other.journal.append("a", [Counted(0)])
        with worker.running():
            other.wait_for(Sums, first.position, timeout_seconds=WAIT_SECONDS)  # Now it leads.
            for n in range(1, 4):
                appended = other.journal.append("a", [Counted(n)])
                other.catch_up(timeout_seconds=WAIT_SECONDS)
                assert fetch(other, SUMS) == [("a", sum(range(n + 1)))]
                assert status_of(other, "sums").position == appended.position
            assert status_of(other, "sums").state == "running"
            assert status_of(other, "sums").epoch == status_of(worker, "sums").epoch

    def test_waiting_for_another_that_runs_it(self, open_app: Callable[..., App]) -> None:
        worker, other = open_app(), open_app()
        for app in (worker, other):
            app.projection(Sums)
        with worker.running():
            for n in range(1, 6):
                appended = other.journal.append("a", [Counted(n)])
                other.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)
                assert fetch(other, SUMS) == [("a", sum(range(n + 1)))]

    def test_two_workers_and_the_second_takes_over(self, open_app: Callable[..., App]) -> None:
        first, second, writer = open_app(), open_app(), open_app()
        for app in (first, second, writer):
            app.projection(Sums)

        def write() -> None:
            appended = writer.journal.append("a", [Counted(1), Counted(2)])
            writer.wait_for(Sums, appended.position, timeout_seconds=WAIT_SECONDS)

        with second.running():
            with first.running():
                for _ in range(3):
                    write()
            for _ in range(3):
                write()
            assert fetch(writer, SUMS) == [("a", 18)]
            assert status_of(writer, "sums").events_processed == 12

    def test_many_workers_and_writers(self, open_app: Callable[..., App]) -> None:
        apps = [open_app() for _ in range(3)]
        for app in apps:
            app.projection(Sums)

        def work(number: int) -> None:
            with apps[number].running():
                for n in range(10):
                    apps[number].journal.append(f"s{n % 3}", [Counted(n), Counted(1)])
                head = apps[number].journal.head()
                apps[number].wait_for(Sums, head, timeout_seconds=WAIT_SECONDS)

        concurrently(3, work)
        apps[0].catch_up(timeout_seconds=WAIT_SECONDS)
        expected = [3 * (sum(range(first, 10, 3)) + len(range(first, 10, 3))) for first in range(3)]
        assert fetch(apps[0], SUMS) == [(f"s{n}", expected[n]) for n in range(3)]
        assert status_of(apps[0], "sums").events_processed == 60

    def test_a_fault_is_seen_by_others_and_mended_by_new_code(
        self, open_app: Callable[..., App]
    ) -> None:
        old, new = open_app(), open_app()

        @old.projection(name="sums")
        class Broken(TableProjection[Sum]):
            @on(Counted)
            def counted(self, row: Sum, event: Event[Counted]) -> None:
                row.total += 6 // event.data.n

        new.projection(Sums)
        appended = old.journal.append("a", [Counted(1), Counted(0), Counted(2)])
        with pytest.raises(ProjectionFaulted):
            old.catch_up()
        status = status_of(new, "sums")
        assert status.state == "faulted"
        assert status.last_error is not None
        assert status.last_error.type == "ZeroDivisionError"
        assert status.last_error.position == appended.positions[1]
        with pytest.raises(ProjectionFaulted):
            new.wait_for(Sums, appended.position)
        new.catch_up()
        assert fetch(new, SUMS) == [("a", 6 + 0 + 2)]
        assert status_of(old, "sums").last_error is None

    def test_new_code_with_another_table_needs_a_reset(self, open_app: Callable[..., App]) -> None:
        old, new = open_app(), open_app()
        old.projection(Sums)
        old.journal.append("a", [Counted(1)])
        old.catch_up()

        @new.projection(name="sums")
        class Texts(TableProjection[Text]):
            @on(Counted)
            def counted(self, row: Text, event: Event[Counted]) -> None:
                row.total += str(event.data.n)

        with pytest.raises(ProjectionFaulted, match="holdfast reset sums"):
            new.catch_up()
        assert fetch(new, SUMS) == [("a", 1)]
        new.reset("sums")
        new.catch_up()
        assert fetch(new, SUMS) == [("a", "1")]
