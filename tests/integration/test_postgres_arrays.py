"""Arrays that are packed here arrive as the driver's own do."""

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.model.rows.column_values import MAX_INT, MIN_INT, ColumnKind
from holdfast.sql.postgres.array_packing import Packed, packed
from holdfast.sql.postgres.database import PostgresDatabase
from holdfast.sql.url import PostgresUrl, parse_url

EAST = timezone(timedelta(hours=5, minutes=45))


@pytest.mark.parametrize(
    ("kind", "type_", "values"),
    [
        ("int", "bigint", [0, 1, -1, MAX_INT, MIN_INT]),
        ("str", "text", ["", "a", "é", "\U0001f680" * 300, '"{,}\\', "NULL"]),
        (
            "datetime",
            "timestamptz",
            [
                datetime(1999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
                datetime(1, 1, 1, tzinfo=UTC),
                datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                datetime(2026, 3, 4, 5, 6, 7, tzinfo=EAST),
            ],
        ),
    ],
)
def test_a_packed_array_is_the_drivers(
    postgres_url: str, kind: ColumnKind, type_: str, values: Sequence[Any]
) -> None:
    ours = packed(kind, values)
    assert isinstance(ours, Packed)
    assert _sent(postgres_url, type_, ours) == _sent(postgres_url, type_, list(values)) == values


@pytest.mark.parametrize(
    ("kind", "type_", "values"),
    [("int", "bigint", [1, None]), ("str", "text", []), ("bool", "boolean", [True, False])],
)
def test_other_arrays_are_left_to_the_driver(
    postgres_url: str, kind: ColumnKind, type_: str, values: Sequence[Any]
) -> None:
    ours = packed(kind, values)
    assert isinstance(ours, list)
    assert _sent(postgres_url, type_, ours) == values


def _sent(url: str, type_: str, values: Packed | list[Any]) -> list[Any]:
    """What the server makes of an array."""
    parsed = parse_url(url)
    assert isinstance(parsed, PostgresUrl)
    with closing(PostgresDatabase(parsed)) as database, closing(database.connect_raw()) as raw:
        row = raw.execute(f"SELECT %b::{type_}[]".encode(), (values,), binary=True).fetchone()
    assert row is not None
    found: list[Any] = row[0]
    return found
