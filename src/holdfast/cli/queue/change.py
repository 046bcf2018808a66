"""A change of items, step by step: preview, question, change, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from holdfast.app import App
from holdfast.cli.confirm import confirm
from holdfast.cli.options import Option, by_option, combined, json_option, note_option, yes_option
from holdfast.cli.output import plural, print_json, print_text, shown
from holdfast.cli.queue.item_view import item_fields, line_of
from holdfast.cli.queue.left_alone import why_left_alone
from holdfast.cli.queue.selection import selection_of, selection_options
from holdfast.errors import HoldfastError
from holdfast.runtime.store.queue_items import QueueChange, QueueItem, QueueSelection

MAX_NAMED_ITEMS = 5
"""Maximum number of items that are named before a change."""


@dataclass(frozen=True, slots=True)
class Action:
    """What is done to items, and the words for it."""

    name: str
    does: str
    done: str
    method: str = ""
    """The method of the queue, if it has another name."""
    may_find_nothing: bool = False
    """Whether an empty selection is fine, as for a command that runs every night."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the method."""


def item_change_options(note: Option = note_option) -> Option:
    """The options of a command that changes items, with its own --note if that is given."""
    dry_run = click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
    return combined(selection_options, dry_run, by_option, note, yes_option, json_option)


def change_items(
    app: App,
    action: Action,
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
    """Changes the selected items, and says which items it left alone, and why."""
    selection = selection_of(ids, filters)
    method = getattr(app.queue, action.method or action.name)
    change: QueueChange = method(selection, by=by, note=note, limit=limit, dry_run=True)
    left_alone = [why_left_alone(app, action.name, item) for item in change.left_alone]
    if not change.items and not (action.may_find_nothing and not left_alone):
        raise HoldfastError(_nothing_done(action, left_alone))
    found = len(change.items)
    if change.items and not dry_run:
        what = f"This {action.does} {plural(found, 'item')} on {app.url}:"
        confirm("\n".join([what, *_named(change.items)]), yes=yes)
        if not yes:  # Exactly the items that the operator has seen.
            selection = QueueSelection(ids=tuple(item.id for item in change.items))
        change = method(selection, by=by, note=note, limit=limit, **action.arguments)
    if as_json:
        print_json(_fields(change, left_alone))
        return
    count = plural(len(change.items), "item")
    if dry_run:
        print_text("\n".join([f"would have {action.done} {count}:", *_named(change.items)]))
    else:
        click.echo(f"{action.done} {count}")
    for why in left_alone:
        print_text(shown(f"left alone: {why}"))
    if not ids and found + len(left_alone) == limit:
        click.echo(f"These were the {limit:,} oldest; there may be more. See --limit.")


def _nothing_done(action: Action, left_alone: Sequence[str]) -> str:
    if left_alone:
        return f"nothing was {action.done}: " + "; ".join(left_alone[:MAX_NAMED_ITEMS])
    return f"no item matches, so nothing was {action.done}; holdfast queue list shows all items"


def _named(items: Sequence[QueueItem]) -> list[str]:
    more = len(items) - MAX_NAMED_ITEMS
    rest = [f"  … and {plural(more, 'item')} more"] if more > 0 else []
    return [*(f"  {line_of(item)}" for item in items[:MAX_NAMED_ITEMS]), *rest]


def _fields(change: QueueChange, left_alone: Sequence[str]) -> dict[str, Any]:
    return {
        "action": change.action,
        "dry_run": change.dry_run,
        "items": [item_fields(item) for item in change.items],
        "left_alone": [
            {"id": item.id, "status": item.status, "why": why}
            for item, why in zip(change.left_alone, left_alone, strict=False)
        ],
    }
