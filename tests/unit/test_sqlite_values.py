"""Values as SQLite stores them."""

from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta

from holdfast.model.rows.row_type import table_of
from holdfast.sql.sqlite.column_values import encode, encode_all

MOMENTS = [
    datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 10, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC, microsecond=0),
]


def test_many_moments_are_written_as_one_is() -> None:
    row_type = make_dataclass(
        "Row", [("id", str), ("at", datetime, MOMENTS[0]), ("seen", datetime | None, None)]
    )
    _, at, seen = table_of(row_type, name="row").columns
    assert [*encode_all(at, MOMENTS)] == [encode(at, moment) for moment in MOMENTS]
    assert encode(at, MOMENTS[3]) == "2026-01-02T00:00:00.000000+00:00"
    assert [*encode_all(at, [])] == []
    some = [MOMENTS[0], None, MOMENTS[0] + timedelta(days=1)]
    assert [*encode_all(seen, some)] == [encode(seen, moment) for moment in some]
