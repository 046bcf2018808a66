"""`holdfast queue`: the commands, first those that look, then those that change."""

from __future__ import annotations

from typing import Any

import click

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.confirm import confirm
from holdfast.cli.options import change_options, confirmed_change_options, json_option, limit_option
from holdfast.cli.output import one_line, plural, print_json, print_result, print_rows, print_text
from holdfast.cli.queue.change import Action, change_items, item_change_options
from holdfast.cli.queue.item_view import (
    all_fields,
    item_fields,
    items_table,
    line_of,
    lines_of,
    stats_table,
)
from holdfast.cli.queue.selection import selection_options
from holdfast.model.feed_names import JOURNAL
from holdfast.runtime.store.queue_items import QueueSelection


@click.group()
def queue() -> None:
    """Inspect, requeue and resolve events that could not be applied.

    The queue holds events that have failed, and the events that wait behind them in their lanes.
    """


@queue.command("list")
@takes_app()
@selection_options
@json_option
def list_(app: App, limit: int, as_json: bool, **filters: Any) -> None:
    """List the items of the queue, the oldest first."""
    items = app.queue.list(QueueSelection(**filters), limit=limit)
    empty = "no item matches" if any(filters.values()) else "the queue is empty"
    print_rows(items, items_table, empty, as_json, items=[item_fields(item) for item in items])
    if len(items) == limit and not as_json:
        click.echo(f"There may be more; these are the {limit:,} oldest. See --limit.")


@queue.command()
@takes_app("ID")
@json_option
def show(app: App, item_id: str, as_json: bool) -> None:
    """Show one item: payload, metadata, attempts and traceback."""
    if not item_id.isdecimal():
        raise click.UsageError(f"{item_id!r} is not an id; holdfast queue list shows them.")
    item = app.queue.get(int(item_id))
    if as_json:
        print_json(all_fields(item))
        return
    for line in lines_of(item):
        print_text(line)


@queue.command()
@takes_app()
@json_option
def stats(app: App, as_json: bool) -> None:
    """Count items by projection, status and error."""
    counts = app.queue.stats()
    print_rows(counts, stats_table, "the queue is empty", as_json, counts=counts)


@queue.command()
@takes_app(numbers="ID")
@click.option(
    "--accept-gap",
    is_flag=True,
    help="Go on without the versions that the items miss in their streams. If these come later, "
    "they count as duplicates.",
)
@item_change_options()
def requeue(app: App, ids: tuple[int, ...], accept_gap: bool, **options: Any) -> None:
    """Try failed and dead items again, as if they were new.

    The items stay in their lanes, in order, and the events behind them follow. Their attempts
    begin again at 1. Their history is kept.
    """
    arguments = {"accept_gap": True} if accept_gap else {}
    action = Action("requeue", "requeues", "requeued", arguments=arguments)
    change_items(app, action, ids, **options)


@queue.command()
@takes_app(numbers="ID")
@item_change_options()
def retry(app: App, ids: tuple[int, ...], **options: Any) -> None:
    """Try failed and dead items once more, at once.

    Their attempts go on counting: an item that was dead is dead again if it fails.
    """
    action = Action("retry", "retries", "marked for a retry", method="mark_retrying")
    change_items(app, action, ids, **options)


@queue.command()
@takes_app(numbers="ID")
@item_change_options(
    click.option("--note", required=True, metavar="TEXT", help="What was done about the items.")
)
def resolve(app: App, ids: tuple[int, ...], **options: Any) -> None:
    """Close items that an operator has dealt with; their lanes go on.

    Resolved items are not tried again.
    """
    change_items(app, Action("resolve", "resolves", "resolved"), ids, **options)


@queue.command()
@takes_app(numbers="ID")
@item_change_options()
def purge(app: App, ids: tuple[int, ...], **options: Any) -> None:
    """Delete skipped, resolved and done items.

    An item that still waits is never deleted.
    """
    action = Action("purge", "deletes", "deleted", may_find_nothing=True)
    change_items(app, action, ids, **options)


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
    metavar="NAME",
    help="The feed; on Kafka, the partition, as in orders[3].",
)
@click.option("--error", metavar="TEXT", help="What is wrong with the event.")
@change_options
def add(app: App, projection: str, position: int, as_json: bool, **options: Any) -> None:
    """Park an event that is known to be bad.

    The event waits in the queue, and its lane with it. With an outbox, that is any event that
    waits. Otherwise it is the next event of a projection, such as one that stops it, with its
    error. Workers that run go on with the other lanes.
    """
    app.tables(projection)  # Raises for an unknown name.
    item = app.queue.add(projection, position, **options)
    text = f"the event at position {position} is item {item.id} of the queue"
    print_result(text, as_json, **item_fields(item))


@queue.command("import")
@takes_app("PROJECTION")
@click.option("--topic", required=True, metavar="NAME", help="The dead-letter topic.")
@click.option("--hold", is_flag=True, help="Try no event before it is requeued.")
@limit_option(1_000, "Maximum number of events put into the queue.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@confirmed_change_options
def import_(
    app: App, projection: str, *, topic: str, yes: bool, as_json: bool, **options: Any
) -> None:
    """Put the events of a Kafka dead-letter topic into the queue.

    It does not matter who has written them. Each event waits in its lane and is tried in its turn.
    The command leaves alone events that are in the queue already or were applied, so it can be
    repeated.
    """
    app.tables(projection)  # Raises for an unknown name, before the question.
    if not options["dry_run"]:
        what = f"This puts events of topic {topic!r} into the queue of {projection!r}."
        confirm(what, yes=yes)
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
@confirmed_change_options
def replay(app: App, id: str, yes: bool, as_json: bool, **audit: Any) -> None:
    """Try one item of an outbox projection now, in this process.

    The item must be the head of its lane. No worker gets it meanwhile. If the attempt fails, the
    exit code is 1, and the projection's policy decides what follows: an item that was dead is dead
    again.
    """
    if not id.isdecimal():
        raise click.BadParameter(f"{id!r} is not the number of an item.", param_hint="ID")
    item = app.queue.get(int(id))
    confirm(f"This runs the handler of {item.projection!r} here:\n{line_of(item)}", yes=yes)
    left = app.outbox.replay(item.id, **audit)
    if left is None:
        print_result(f"item {item.id} is applied", as_json, applied=True, item=None)
        return
    text = f"item {item.id} has failed again: {left.error_type}: {left.error_message}"
    print_result(one_line(text), as_json, applied=False, item=all_fields(left))
    raise SystemExit(1)
