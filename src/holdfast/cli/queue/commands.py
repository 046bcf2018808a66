"""`holdfast queue`: what waits, was skipped or resolved, and how to put it right."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import by_option, confirm, note_option, yes_option
from holdfast.cli.output import json_option, plural, print_json, stdout_console
from holdfast.cli.queue.item_view import (
    in_full,
    line_of,
    plain,
    stats_table,
    table_of,
    why_left_alone,
)
from holdfast.errors import HoldfastError
from holdfast.model.feed_names import JOURNAL
from holdfast.runtime.store.queue_items import STATUSES, QueueChange, QueueItem, QueueSelection

F = TypeVar("F", bound=Callable[..., Any])

FIRST_ITEMS = 5
"""So many are named before a change."""

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """30s, 5m, 2h or 7d, in seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not an age such as 30s, 5m, 2h or 7d.")
    return float(match[1]) * UNIT_SECONDS[match[2]]


def selecting(function: F) -> F:
    """Adds the options that select items, as `selection` without ids, and --limit."""
    options = (
        click.option("--projection", metavar="NAME", help="Only items of this projection."),
        click.option("--lane", metavar="NAME", help="Only items of this lane."),
        click.option("--version", type=int, metavar="N", help="Only events of this version."),
        click.option("--status", type=click.Choice(STATUSES), help="Only items in this status."),
        click.option("--error-type", metavar="NAME", help="Only items with such an error."),
        click.option("--event-type", metavar="NAME", help="Only events of this type."),
        click.option(
            "--older-than",
            "older_than_seconds",
            callback=_seconds,
            metavar="AGE",
            help="Only items that have been there so long: 30s, 5m, 2h, 7d.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=100,
            show_default=True,
            metavar="N",
            help="How many at most, the oldest first.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def changing(function: F) -> F:
    """Adds the options of every change, except its note."""
    dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
    return selecting(dry_run(by_option(yes_option(json_option(function)))))


@click.group()
def queue() -> None:
    """Look into the queue, and put right what waits there.

    It holds events that could not be applied, and what waits behind them in their lanes.
    """


@queue.command("list")
@takes_app()
@selecting
@json_option
def list_(app: App, limit: int, as_json: bool, **filters: Any) -> None:
    """Show what is in the queue, the oldest first."""
    items = app.queue.list(QueueSelection(**filters), limit=limit)
    if as_json:
        print_json({"items": [plain(item, in_full=False) for item in items]})
    elif items:
        stdout_console().print(table_of(items))
        if len(items) == limit:
            click.echo(f"There may be more; these are the {limit:,} oldest. See --limit.")
    else:
        click.echo("nothing fits" if any(filters.values()) else "the queue is empty")


@queue.command()
@takes_app("ID")
@json_option
def show(app: App, item_id: str, as_json: bool) -> None:
    """Show one item: payload, metadata, each attempt and the traceback."""
    if not item_id.isdecimal():
        raise click.UsageError(f"{item_id!r} is not an id; holdfast queue list shows them.")
    item = app.queue.get(int(item_id))
    if as_json:
        print_json(plain(item, in_full=True))
        return
    for line in in_full(item):
        click.echo(line)


@queue.command()
@takes_app()
@json_option
def stats(app: App, as_json: bool) -> None:
    """Count what is in the queue, by projection, status and error."""
    counts = app.queue.stats()
    if as_json:
        print_json({"counts": counts})
    elif counts:
        stdout_console().print(stats_table(counts))
    else:
        click.echo("the queue is empty")


@queue.command()
@takes_app("PROJECTION")
@click.option(
    "--position",
    required=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="The event's position in its feed; on Kafka, its offset plus one.",
)
@click.option(
    "--feed",
    default=JOURNAL,
    show_default=True,
    metavar="NAME",
    help="The feed; on Kafka, the partition, as in orders[3].",
)
@by_option
@note_option
@json_option
def add(
    app: App, projection: str, *, position: int, feed: str, by: str, note: str | None, as_json: bool
) -> None:
    """Park the event that a projection comes to next, such as one that stops it.

    The event waits in the queue, and its lane with it; the other lanes go on, when the worker is
    started again.
    """
    app.tables(projection)  # A wrong name is an error of its own.
    item = app.queue.add(projection, position, feed=feed, by=by, note=note)
    if as_json:
        print_json(plain(item, in_full=False))
    else:
        click.echo(f"the event at position {position} is item {item.id} of the queue")


@queue.command()
@takes_app(numbers="ID")
@changing
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Go on without the versions that these miss in their streams. They count as duplicates "
    "if they come after all.",
)
@note_option
def requeue(app: App, ids: tuple[int, ...], accept_gap: bool, **options: Any) -> None:
    """Have failed and dead items tried again, as if new.

    They stay in their lanes, in order; what waits behind them follows. Their attempts begin
    again at 1, and their history is kept.
    """
    more = {"accept_gap": True} if accept_gap else {}
    _change(app, _Action("requeue", "requeues", "requeued", more=more), ids, **options)


@queue.command("import")
@takes_app("PROJECTION")
@click.option("--topic", required=True, metavar="NAME", help="The dead-letter topic.")
@click.option("--hold", is_flag=True, help="Try nothing before it is requeued.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    metavar="N",
    help="How many at most are put into the queue.",
)
@click.option("--dry-run", is_flag=True, help="Only count.")
@by_option
@note_option
@yes_option
@json_option
def import_(app: App, projection: str, yes: bool, as_json: bool, **options: Any) -> None:
    """Put what is in a dead-letter topic of Kafka, whoever has written it, into the queue.

    Each event waits in its lane and is tried in its turn. What is in the queue already, or was
    applied, is left alone: the command can be repeated.
    """
    app.tables(projection)  # A wrong name is an error of its own.
    if not options["dry_run"]:
        what = f"This puts events of topic {options['topic']!r} into the queue of {projection!r}."
        confirm(what, yes=yes)
    topic = options.pop("topic")
    done = app.queue.bring_in(projection, topic, **options)
    if as_json:
        print_json(done)
        return
    would = "would have put" if done.dry_run else "put"
    click.echo(
        f"{would} {plural(done.added, 'event')} into the queue; {done.known:,} of the "
        f"{done.read:,} read were known"
    )
    if not done.is_complete:
        click.echo("There may be more. See --limit.")


@queue.command()
@takes_app("ID")
@by_option
@note_option
@yes_option
@json_option
def replay(app: App, id: str, by: str, note: str | None, yes: bool, as_json: bool) -> None:
    """Try one item of an outbox projection now, in this process, and show what comes of it.

    It must be the first one of its lane; a failed or dead one is requeued for it. If it fails, the
    exit code is 1, and its policy says what follows.
    """
    if not id.isdecimal():
        raise click.BadParameter(f"{id!r} is not the number of an item.", param_hint="ID")
    item = app.queue.get(int(id))
    confirm(f"This runs the handler of {item.projection!r} here:\n{line_of(item)}", yes=yes)
    left = app.outbox.replay(item.id, by=by, note=note)
    if as_json:
        print_json({"applied": left is None, "item": left and plain(left, in_full=True)})
    elif left is None:
        click.echo(f"item {item.id} is applied")
    else:
        click.echo(f"item {item.id} has failed again: {left.error_type}: {left.error_message}")
    if left is not None:
        raise SystemExit(1)


@queue.command()
@takes_app(numbers="ID")
@changing
@click.option("--note", required=True, metavar="TEXT", help="What was done about them; required.")
def resolve(app: App, ids: tuple[int, ...], **options: Any) -> None:
    """Say that a person has dealt with items: they are not tried, and their lanes go on."""
    _change(app, _Action("resolve", "resolves", "resolved"), ids, **options)


@queue.command()
@takes_app(numbers="ID")
@changing
@note_option
def purge(app: App, ids: tuple[int, ...], **options: Any) -> None:
    """Delete skipped, resolved and done items. What still waits is never deleted."""
    action = _Action("purge", "deletes", "deleted", may_be_nothing=True)
    _change(app, action, ids, **options)


@dataclass(frozen=True, slots=True)
class _Action:
    """A method of the queue, and the words for it."""

    name: str
    does: str
    done: str
    may_be_nothing: bool = False
    """To find nothing is no mistake: it is meant to be run again and again."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments."""


def _change(
    app: App,
    action: _Action,
    ids: tuple[int, ...],
    *,
    limit: int,
    by: str,
    note: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    selection = _selection(ids, filters)
    method = getattr(app.queue, action.name)
    change: QueueChange = method(selection, by=by, note=note, limit=limit, dry_run=True)
    left_alone = [why_left_alone(app, action.name, item) for item in change.left_alone]
    if not change.items and not (action.may_be_nothing and not left_alone):
        raise HoldfastError(_nothing(action, left_alone))
    found = len(change.items)
    if change.items and not dry_run:
        what = f"This {action.does} {plural(found, 'item')} on {app.url}:"
        confirm("\n".join([what, *_first(change.items)]), yes=yes)
        if not yes:  # What was shown, and nothing that came meanwhile.
            selection = QueueSelection(ids=tuple(item.id for item in change.items))
        change = method(selection, by=by, note=note, limit=limit, **action.more)
    if as_json:
        _print_change(change, left_alone)
        return
    count = plural(len(change.items), "item")
    if dry_run:
        click.echo("\n".join([f"would have {action.done} {count}:", *_first(change.items)]))
    else:
        click.echo(f"{action.done} {count}")
    for why in left_alone:
        click.echo(f"left alone: {why}")
    if not ids and found + len(left_alone) == limit:
        click.echo(f"These were the {limit:,} oldest; there may be more. See --limit.")


def _selection(ids: tuple[int, ...], filters: dict[str, Any]) -> QueueSelection:
    given = {name: value for name, value in filters.items() if value is not None}
    if ids and given:
        raise click.UsageError("name ids, or select items by options; not both.")
    if not ids and not given:
        raise click.UsageError(
            "which items? Name ids, or select with --lane, --projection, --status, --error-type, "
            "--event-type or --older-than."
        )
    return QueueSelection(ids=ids, **given)


def _nothing(action: _Action, left_alone: Sequence[str]) -> str:
    if left_alone:
        return f"nothing was {action.done}: " + "; ".join(left_alone[:FIRST_ITEMS])
    return f"no item fits, so nothing was {action.done}; holdfast queue list shows what there is"


def _first(items: Sequence[QueueItem]) -> list[str]:
    more = len(items) - FIRST_ITEMS
    rest = [f"  … and {plural(more, 'item')} more"] if more > 0 else []
    return [*(f"  {line_of(item)}" for item in items[:FIRST_ITEMS]), *rest]


def _print_change(change: QueueChange, left_alone: Sequence[str]) -> None:
    print_json(
        {
            "action": change.action,
            "dry_run": change.dry_run,
            "items": [plain(item, in_full=False) for item in change.items],
            "left_alone": [
                {"id": item.id, "status": item.status, "why": why}
                for item, why in zip(change.left_alone, left_alone, strict=False)
            ],
        }
    )
