"""Tables on a terminal of 80 columns: numbers and ids are never cut."""

import io
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from rich.console import Console, RenderableType

from holdfast import OutboxReport, QueueItem
from holdfast.cli.outbox import _view
from holdfast.cli.output import Table
from holdfast.cli.queue.item_view import items_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = "a_projection_with_a_long_name"


def lines_of(table: RenderableType, width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def item(number: int) -> QueueItem:
    return QueueItem(
        id=number,
        projection=LONG,
        feed="journal",
        lane="customer-0000000000000017",
        status="dead",
        attempts=12,
        retries=0,
        history=(),
        created_at=NOW,
        updated_at=NOW,
        position=number,
        stream="customer-0000000000000017",
        version=1,
        event_id=uuid4(),
        event_type="SubscriptionRenewed",
        data="{}",
        metadata="{}",
        recorded_at=NOW,
        next_attempt_at=None,
        first_failed_at=NOW,
        last_failed_at=NOW,
        error_stacktrace=None,
        resolved_by=None,
        resolved_at=None,
        note=None,
        kept=None,
        error_type="ValueError",
        error_message="the card has expired and nobody was told",
    )


def test_the_queue_shows_ids() -> None:
    header, _, row = lines_of(items_table([item(1_234_567)]))
    assert header.split()[0] == "id"
    assert row.split()[0] == "1234567"
    assert " dead " in row
    assert len(row) <= 80


def test_the_outbox_report_shows_its_numbers() -> None:
    statuses = ("pending", "processing", "retrying", "failed", "dead")
    report = OutboxReport(
        projection=LONG,
        mode="shadow",
        backfill_left=0,
        depth=dict(zip(statuses, (1_234, 2, 3, 45, 678), strict=True)),
        lag_seconds=987.0,
        stuck_events=789,
        stuck_seconds=5.0,
        applied=123_456,
        failed=4_321,
        relays=(),
        items=(),
    )
    header, _, row = lines_of(_view([report]))
    titles = "mode workers pending tried failed dead lag stuck applied failures"
    assert header.split()[1:] == titles.split()
    assert row.endswith("shadow       0   1,234     5     45  678 987 s   789 123,456    4,321")
    assert len(row) <= 80


@pytest.mark.parametrize("width", [40, 80])
def test_texts_are_cut_first(width: int) -> None:
    table = Table(("name", "count", "why"), [("x" * 60, "12,345", "y" * 60)], right=("count",))
    header, _, row = lines_of(table, width)
    assert header.split() == ["name", "count", "why"]
    assert "12,345" in row.split()
    assert len(row) <= width
