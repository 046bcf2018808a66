"""What a handler does to a row happens as a whole, or not at all."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.model.rows.row_type import TableSpec, table_of

EARLY = datetime(2026, 1, 2, 3, tzinfo=UTC)


@dataclass
class Account:
    id: str
    amount: int = 0
    rate: float = 0.0
    seen: datetime | None = None
    note: str = ""
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    id: str
    amount: int = 0


Handle = Callable[[Any, Any], Any]


def fold(handle: Handle, row: Any, *, is_new: bool = False) -> Any:
    """The row that a handler leaves; what it returns is that row, and "delete" deletes it."""

    def given(row: Any, result: Any) -> Any:
        return None if result == "delete" else result

    return spec(type(row)).fold(row, is_new, handle, "event", given)


def spec(row_type: type) -> TableSpec:
    return table_of(row_type, name="accounts")


def account(**values: Any) -> Account:
    return Account("a", **{"amount": 5, "rate": 1.5, "seen": EARLY, "tags": ["x"], **values})


def test_a_row_has_what_the_handler_gave_it() -> None:
    def handle(row: Account, event: str) -> None:
        assert event == "event"
        row.amount += 1
        row.tags.append("y")

    row = account()
    assert fold(handle, row) is row
    assert row == account(amount=6, tags=["x", "y"])


def test_values_become_what_would_be_loaded() -> None:
    def handle(row: Account, _: str) -> None:
        row.rate = 2
        row.seen = EARLY.astimezone(timezone(timedelta(hours=2)))

    row = account()
    fold(handle, row)
    assert (row.rate, type(row.rate)) == (2.0, float)
    assert (row.seen, row.seen and row.seen.tzinfo) == (EARLY, UTC)


def test_of_a_new_row_everything_is_looked_at() -> None:
    row = Account("a", rate=3)
    fold(lambda row, _: None, row)
    assert type(row.rate) is int
    fold(lambda row, _: None, row, is_new=True)
    assert type(row.rate) is float


def refuse(row: Account, _: str) -> None:
    row.amount, row.tags = 7, ["z"]
    raise KeyError("no")


def wrong_type(row: Account, _: str) -> None:
    row.tags.append("y")
    row.amount = "7"  # type: ignore[assignment]


def too_large(row: Account, _: str) -> None:
    row.seen = None
    row.amount = 2**63


def naive(row: Account, _: str) -> None:
    row.amount = 7
    row.seen = datetime(2026, 1, 2)


def wrong_json(row: Account, _: str) -> None:
    row.amount = 7
    row.tags.append(5)  # type: ignore[arg-type]


def lost_field(row: Account, _: str) -> None:
    row.amount = 7
    del row.tags


def other_key(row: Account, _: str) -> None:
    row.amount = 7
    row.id = "b"


def not_unicode(row: Account, _: str) -> None:
    row.amount = 7
    row.note = "\ud800"


def lost_key(row: Account, _: str) -> None:
    row.amount = 7
    del row.id


@pytest.mark.parametrize(
    ("handle", "error", "message"),
    [
        (refuse, KeyError, "no"),
        (wrong_type, ValueError, r"row \('a',\): column 'amount' \(int\) can't hold '7'"),
        (too_large, ValueError, "more than 64 bits"),
        (naive, ValueError, r"column 'seen' \(datetime \| None\) can't hold"),
        (wrong_json, ValueError, r"column 'tags' \(JSON\) can't hold"),
        (lost_field, AttributeError, "tags"),
        (lost_key, AttributeError, "id"),
        (other_key, ValueError, r"changed the key of row \('a',\) of table 'accounts'"),
        (not_unicode, ValueError, r"column 'note' \(str\) can't hold .*: text that is not valid"),
    ],
)
def test_a_row_is_as_it_was_when_something_fails(
    handle: Handle, error: type[Exception], message: str
) -> None:
    row = account()
    with pytest.raises(error, match=message):
        fold(handle, row)
    assert row == account()


class Odd:
    """Nothing that JSON can hold."""


def test_what_a_new_row_begins_with_need_not_be_storable() -> None:
    """As long as the handler replaces it."""

    def handle(row: Account, _: str) -> None:
        row.tags = ["x"]

    row = Account("a", tags=Odd())  # type: ignore[arg-type]
    assert fold(handle, row, is_new=True).tags == ["x"]
    with pytest.raises(KeyError, match="no"):  # Not what is wrong with the row besides.
        fold(refuse, Account("a", tags=Odd()), is_new=True)  # type: ignore[arg-type]


def test_a_stack_trace_shows_the_code() -> None:
    with pytest.raises(KeyError) as caught:
        fold(refuse, account())
    assert "result = handler(row, event)" in "".join(traceback.format_exception(caught.value))


def test_interruptions_are_undone_as_well() -> None:
    def handle(row: Account, _: str) -> None:
        row.amount = 7
        raise KeyboardInterrupt

    row = account()
    with pytest.raises(KeyboardInterrupt):
        fold(handle, row)
    assert row == account()


def test_another_row_in_its_place() -> None:
    row = Frozen("a", 5)
    left = fold(lambda row, _: Frozen("a", row.amount + 1), row)
    assert (row, left) == (Frozen("a", 5), Frozen("a", 6))


def test_another_row_has_the_same_key() -> None:
    with pytest.raises(ValueError, match=r"changed the key of row \('a',\)"):
        fold(lambda row, _: Frozen("b"), Frozen("a"))


def test_another_row_is_looked_at_too() -> None:
    row = account()
    left = fold(lambda row, _: Account("a", rate=2), row)
    assert type(left.rate) is float
    with pytest.raises(ValueError, match="can't hold 'x'"):
        fold(lambda row, _: Account("a", "x"), row)  # type: ignore[arg-type]
    assert row == account()


def test_a_frozen_row_is_put_back() -> None:
    def handle(row: Frozen, _: str) -> None:
        object.__setattr__(row, "amount", 7)
        raise KeyError

    row = Frozen("a", 5)
    with pytest.raises(KeyError):
        fold(handle, row)
    assert row == Frozen("a", 5)


def test_a_row_that_is_deleted_is_not_looked_at() -> None:
    def handle(row: Account, _: str) -> str:
        row.amount = "x"  # type: ignore[assignment]
        return "delete"

    assert fold(handle, account()) is None


def test_what_a_field_itself_refuses_is_told_in_its_words() -> None:
    class Strict:
        def __get__(self, row: Any, owner: Any) -> str:
            raise ValueError("there is nothing to see")

        def __set__(self, row: Any, value: str) -> None: ...

    row_type = make_dataclass("Row", [("id", str), ("value", str, "")])
    table = spec(row_type)
    row = table.new_row(("a",))
    row_type.value = Strict()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="there is nothing to see"):
        table.fold(row, False, lambda row, _: None, "event", lambda row, _: row)
