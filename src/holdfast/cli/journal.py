"""`holdfast journal`: append, read, export and import events."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import UUID

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.options import json_option
from holdfast.cli.output import plural, print_result, print_text, progress_bar, shown
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.model.event import NewEvent, RawEvent
from holdfast.sql.journal.export import export_lines, resume_export
from holdfast.sql.journal.import_lines import import_lines
from holdfast.sql.journal.journal import Journal
from holdfast.sql.journal.json_lines import encode_line
from holdfast.texts import shown_json

STREAM = click.option("--stream", metavar="NAME", help="Only the events of this stream.")


@click.group()
def journal() -> None:
    """Append, show, export and import events of the journal."""


@journal.command()
@takes_app("STREAM")
@click.option("--type", "type_name", required=True, metavar="NAME", help="The event's type.")
@click.option("--data", required=True, metavar="JSON", help="The payload, an object; - is stdin.")
@click.option("--metadata", metavar="JSON", help="The metadata, an object.")
@click.option(
    "--expected-version",
    type=click.IntRange(min=0),
    metavar="N",
    help="Append only if the stream is at this version; 0 if it must not exist.",
)
@click.option(
    "--id",
    "event_id",
    type=click.UUID,
    metavar="UUID",
    help="The event's id; appending the same id again changes nothing.",
)
@json_option
def append(
    app: App,
    stream: str,
    *,
    type_name: str,
    data: str,
    metadata: str | None,
    expected_version: int | None,
    event_id: UUID | None,
    as_json: bool,
) -> None:
    """Append one event to a stream.

    The payload is checked against the class that the app registers under the type's name.
    """
    text = sys.stdin.buffer.read() if data == "-" else os.fsencode(data)
    event = NewEvent(
        _object(text, "--data"),
        type=type_name,
        id=event_id,
        metadata=None if metadata is None else _object(os.fsencode(metadata), "--metadata"),
    )
    appended = app.journal.append(stream, [event], expected_version=expected_version)
    text = f"{shown(stream)} is at version {appended.version}; position {appended.position}"
    print_result(text, as_json, **msgspec.structs.asdict(appended))


@journal.command()
@takes_app()
@json_option
def head(app: App, as_json: bool) -> None:
    """Print the last position of the journal; 0 if it is empty."""
    position = app.journal.head()
    print_result(str(position), as_json, head=position)


@journal.command()
@takes_app()
@click.option(
    "-n", "--number", type=click.IntRange(min=0), default=10, metavar="N", help="Number of events."
)
@click.option("-f", "--follow", is_flag=True, help="Show new events as they come, until Ctrl-C.")
@STREAM
@json_option
def tail(app: App, number: int, follow: bool, stream: str | None, as_json: bool) -> None:
    """Show the last events, the oldest first, with payloads as stored."""
    show = _show_json if as_json else _show
    recent = _last_events(app.journal, number)
    settled = recent[-1].position if recent else 0
    last = 0
    of_all = recent[max(0, len(recent) - number) :]
    for event in of_all if stream is None else _last_events_of(app, stream, number):
        show(event)
        last = event.position
    if not follow:
        return
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        for event in app.journal.tail_raw(after=settled):
            if event.position > last and stream in (None, event.stream):
                show(event)
                sys.stdout.flush()


@journal.command()
@takes_app()
@click.option("-o", "--output", default="-", metavar="FILE", help="The file; - is stdout.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="POSITION",
    help="Only events after this position.",
)
@STREAM
@click.option("--resume", is_flag=True, help="Go on where FILE ends; create it if needed.")
def export(app: App, *, output: str, after: int, stream: str | None, resume: bool) -> None:
    """Write the journal as JSON Lines, up to its present head.

    A line has position, stream, version, id, type, data, metadata and recorded_at; data and
    metadata are written exactly as stored. --resume cuts off a half-written line and goes on after
    the last whole one, so that an export can be interrupted, or kept up to date.
    """
    if resume and output == "-":
        raise click.UsageError("--resume needs --output FILE")
    with _output(output, resume) as out:
        begin = max(after, resume_export(app.journal, out, stream=stream)) if resume else after
        total = max(0, app.journal.head() - begin)
        with progress_bar("exporting", total, unit="positions") as show:
            done = export_lines(
                app.journal,
                out,
                after=begin,
                stream=stream,
                progress=lambda done: show(done.position - begin),
            )
    where = "" if output == "-" else f" to {output}"
    print_text(f"exported {plural(done.events, 'event')}{where}", err=True)


@journal.command("import")
@takes_app("FILE")
@json_option
def import_(app: App, file: str, as_json: bool) -> None:
    """Append the events of a JSON Lines file, in its order; - reads stdin.

    A line needs stream, type and data. Its id, metadata and recorded_at are kept, if it has them.
    A version must be the next one of its stream. Events get new positions.

    It is safe to import a file again: events whose ids are in the journal are passed over. So run
    the same command again after an interruption. A line without an id is known by its number and
    content: a second file with equal lines at the same places needs ids.
    """
    with _input(file) as source:
        size = os.fstat(source.fileno()).st_size if file != "-" else None
        try:
            with progress_bar("importing", size, unit="bytes") as show:
                done = import_lines(
                    app.journal, source, progress=lambda done: show(done.bytes_read)
                )
        except StoreUnavailable as error:
            hint = "import the file again to go on: what is in the journal is passed over"
            raise StoreUnavailable(f"{error}; {hint}") from error
    there = f"; {done.passed_over:,} were there already" if done.passed_over else ""
    text = f"imported {plural(done.imported, 'event')}{there}"
    counts = {"lines": done.lines, "imported": done.imported, "passed_over": done.passed_over}
    print_result(text, as_json, **counts)


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"{what} is not a JSON object: {error}") from error
    return found


def _last_events(journal: Journal, number: int) -> list[RawEvent]:
    """The last settled events, the oldest first: at least `number`, or all there are."""
    head = journal.head()
    reach = max(1, number)
    while True:
        # Appends that were rolled back leave positions without events.
        after = max(0, head - reach)
        found = list(journal.read_raw(after=after))
        if len(found) >= max(1, number) or after == 0:
            return found
        reach *= 4


def _last_events_of(app: App, stream: str, number: int) -> Iterator[RawEvent]:
    version = app.journal.stream_version(stream)
    return app.journal.read_stream_raw(stream, after_version=max(0, version - number))


def _show_json(event: RawEvent) -> None:
    click.echo(shown_json(encode_line(event).decode()), nl=False)


def _show(event: RawEvent) -> None:
    when = event.recorded_at.astimezone().isoformat(sep=" ", timespec="milliseconds")
    name = f"{shown(event.stream)} v{event.version}"
    click.echo(f"{event.position:>8}  {when}  {name}  {shown(event.type)}  {shown(event.data)}")


@contextmanager
def _output(name: str, resume: bool) -> Iterator[BinaryIO]:
    """The file to write: stdout, a new or empty file, or one to resume."""
    if name == "-":
        yield cast("BinaryIO", _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.flush()
        return
    path = Path(name)
    if path.exists() and path.stat().st_size and not resume:
        raise ConfigError(
            f"{name} is there already; go on where it ends with --resume, or remove it"
        )
    if not path.exists():
        path.touch()
    try:
        with path.open("r+b") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        error.filename = error.filename or name
        raise


class _Terminal(io.RawIOBase):
    """A terminal that lines of JSON are written to."""

    def write(self, line: Any) -> int:
        click.echo(shown_json(line.decode()), nl=False)
        return len(line)


@contextmanager
def _input(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file
