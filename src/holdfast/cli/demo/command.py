"""`holdfast demo`: the command, and its temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option
from holdfast.cli.output import print_json
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.cli.demo.screen import Screen

EVENTS = 8_000
WRITE_SECONDS = 12.0
"""The number of events by default, and the time in which they are appended."""


@click.command()
@click.option(
    "--events",
    type=click.IntRange(min=500, max=1_000_000),
    default=EVENTS,
    metavar="N",
    help="Number of events to append; fewer take less time.",
)
@click.option("--keep", is_flag=True, help="Keep the folder, and show commands to inspect it.")
@click.option("--url", metavar="URL", help="An empty database to use instead of a SQLite file.")
@json_option
def demo(events: int, keep: bool, url: str | None, as_json: bool) -> None:
    """Show holdfast at work, in half a minute.

    The demo needs only a temporary folder. A worker process keeps three read models of a small
    bank while four threads append events. It is killed with kill -9 in the middle of its work, and
    a new one takes over. In the end every row is compared with the journal. The exit code is 1 if
    anything is wrong.
    """
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(_folder(keep=keep))
        os.environ["BANK_URL"] = url or f"sqlite:///{folder}/bank.db"
        # Imported here, because the bank reads its URL at import.
        from holdfast.cli.demo import bank, story
        from holdfast.cli.demo.audit import audit
        from holdfast.cli.demo.screen import Screen
        from holdfast.cli.demo.writers import Writers

        cleanup.enter_context(closing(bank.app))
        if bank.app.journal.head():
            raise ConfigError("the demo needs an empty database: this one's journal has events")
        writers = Writers(events, seconds=WRITE_SECONDS * min(1.0, events / EVENTS))
        cleanup.callback(writers.stop)
        screen = Screen(to_stderr=as_json)
        cleanup.callback(screen.close_table)
        story.tell(screen, writers, folder)
        checks = audit(writers.appended)
        story.report(screen, checks)
        if keep:
            _show_commands(screen, folder, own_url=url is None)
    wrong = [check for check in checks if not check.is_right]
    if as_json:
        print_json({"events": writers.appended, "right": not wrong, "checks": checks})
    sys.exit(1 if wrong else 0)


def _show_commands(screen: Screen, folder: Path, *, own_url: bool) -> None:
    screen.say(f"Kept: {folder}. To look at it:")
    variable = "" if own_url else "BANK_URL=… "
    for command in ("status", "journal tail", "run"):
        screen.say(f"   cd {folder} && {variable}holdfast {command} bank:app")


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """A temporary folder with the bank's module, removed at the end, even after a SIGTERM."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        source = files(__package__) / "bank.py"
        (folder / "bank.py").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
