"""`holdfast explain`: why a projection does not advance, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

import click
import msgspec

from holdfast.app import App
from holdfast.cli.app_argument import takes_app
from holdfast.cli.options import json_option
from holdfast.cli.output import one_line, plural, print_result, traceback_lines
from holdfast.errors import StoreUnavailable
from holdfast.runtime.store.queue_items import EARLY, OUTSTANDING
from holdfast.sql.operate.explain import Reason

MAX_LINE_CHARACTERS = 400
"""Maximum length of a reason, or of a line about a closed lane or an append."""


@click.command()
@takes_app("PROJECTION")
@json_option
def explain(app: App, projection: str, as_json: bool) -> None:
    """Say why a projection does not advance, and what to do about it."""
    try:
        reasons = app.explain(projection)
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"the database can't be reached from here; while workers can't reach it either, "
            f"{projection} does not advance: {error}"
        ) from error
    fields, lines = [], [f"{projection}:"]
    for reason in reasons:
        advice = list(_advice(projection, reason))
        fields.append({**msgspec.structs.asdict(reason), "advice": advice})
        lines += [f"- {_cut(reason.text)}", *(f"    {s}" for s in (*_details(reason), *advice))]
    print_result("\n".join(lines), as_json, projection=projection, reasons=fields)


def _details(reason: Reason) -> Iterator[str]:
    """Facts that the reason's text leaves out."""
    fields = reason.fields
    if "error_stacktrace" in fields:
        yield from traceback_lines(fields["error_stacktrace"])
    if reason.kind == "lanes_closed":
        heads = fields["heads"]
        for head in heads:
            yield _head(head)
        if fields["lanes"] > len(heads):
            yield f"… and {plural(fields['lanes'] - len(heads), 'lane')} more"
    elif reason.kind == "held":
        for append in fields["appends"][1:]:
            yield _cut(f"process {append['pid']} since {append['since']}: {append['query']}")


def _head(head: dict[str, Any]) -> str:
    error = f": {head['error_type']}: {head['error_message']}" if head["error_type"] else ""
    behind = head["events"] - 1
    waits = f", {plural(behind, 'event')} behind it" if behind else ""
    return _cut(
        f"item {head['id']}, {head['status']}, lane {head['lane']}, position {head['position']:,} "
        f"({head['event_type']}){waits}{error}"
    )


def _advice(projection: str, reason: Reason) -> Iterator[str]:
    """What an operator can do about a reason."""
    match reason.kind:
        case "delivery" if reason.fields["wanted"] == "an outbox":
            yield f"With the code that it has had so far: holdfast reshard {projection} --to 1"
        case "delivery":
            yield f"To go on in the log: holdfast outbox forget {projection}"
            yield f"To begin again: holdfast reset {projection}"
        case "no_worker":
            yield "Start one: holdfast run"
        case "mode":
            yield f"To let it work: holdfast outbox mode {projection} live"
        case "paused":
            leader = reason.fields["leader"]
            rest = f"; {leader} stands ready to go on" if leader else ""
            yield f"To let it go on: holdfast resume {projection}{rest}"
        case "faulted":
            yield from _advice_for_fault(projection, reason.fields)
        case "waiting":
            yield "It goes on by itself. The events of all its lanes wait until then."
        case "lanes_closed":
            yield from _advice_for_lanes(reason.fields["heads"])
        case "held":
            pid = reason.fields["appends"][0]["pid"]
            yield "Readers wait until its transaction ends, so that they miss none of its events."
            yield f"If the transaction hangs, end it: SELECT pg_terminate_backend({pid})"
        case "resharding":
            yield f"To take it back: holdfast reshard {projection} --to {reason.fields['shards']}"
        case "behind" | "nothing_to_do":
            return
        case _:
            assert_never(reason.kind)


def _advice_for_fault(projection: str, fields: dict[str, Any]) -> Iterator[str]:
    if fields["needs_reset"]:
        yield "Its handler ended the transaction, so the rows may not be what the checkpoint says."
        yield f"Fix the handler, then build it again: holdfast reset {projection}"
        return
    if fields["is_passed"]:
        yield from _advice_for_item(projection, fields["item"], fields["item_status"])
        return
    yield "Everything before that is committed. Fix the cause, and restart workers with new code."
    yield f"If the code was not to blame, workers that run try again: holdfast retry {projection}"
    if fields["position"] is not None:
        feed = f" --feed '{fields['feed']}'" if "feed" in fields else ""
        yield (
            "To go on without the event for now: holdfast queue add "
            f"{projection} --position {fields['position']}{feed}"
        )


def _advice_for_item(projection: str, item: int | None, status: str | None) -> Iterator[str]:
    """Advice about an event that is in the queue, or was."""
    if status not in OUTSTANDING:
        yield "The event is out of the way, and workers that run go on."
        return
    yield f"The event is item {item} of the queue, and is tried as soon as a worker runs it."
    yield f"Look: holdfast queue show {item}. Fix the cause, then: holdfast retry {projection}"
    if status == "failed":
        yield f"To have its attempts begin again at 1: holdfast queue requeue {item}"
    yield f"To go on without it: holdfast queue resolve {item} --note WHY"


def _advice_for_lanes(heads: list[dict[str, Any]]) -> Iterator[str]:
    dead = [head["id"] for head in heads if head["status"] == "dead"]
    if not dead:
        yield "A worker tries them again when they are due."
        return
    yield f"Look: holdfast queue show {dead[0]}"
    ids = " ".join(map(str, dead))
    yield f"When the cause is fixed: holdfast queue requeue {ids}"
    early = " ".join(str(head["id"]) for head in heads if head["error_type"] == EARLY)
    if early:
        yield f"To go on without missing versions: holdfast queue requeue {early} --accept-gap"
    yield f"To go on without them: holdfast queue resolve {ids} --note WHY"


def _cut(text: str) -> str:
    return one_line(text, max_characters=MAX_LINE_CHARACTERS)
