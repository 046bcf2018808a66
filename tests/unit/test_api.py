"""The public API: sorted, documented, typed, and a wrong use is an error before it runs."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.testing

MODULES = [holdfast, holdfast.testing, importlib.import_module("tests.contracts")]


NAMES = [f"{module.__name__}.{name}" for module in MODULES for name in module.__all__]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_names_are_sorted(module: Any) -> None:
    """Constants, then classes, then functions, each by name, as ruff sorts them."""

    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert module.__all__ == sorted(module.__all__, key=rank)
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_documented(name: str) -> None:
    module, _, last = name.rpartition(".")
    item = getattr(importlib.import_module(module), last)
    doc = inspect.getdoc(item)
    assert doc
    assert not doc.startswith(f"{last}("), "the signature that a dataclass makes is no sentence"
    if inspect.isclass(item):
        for attribute, member in vars(item).items():
            if not attribute.startswith(("_", "test_")) and inspect.isfunction(member):
                assert inspect.getdoc(member), attribute


def test_the_error_tree_is_complete() -> None:
    errors = importlib.import_module("holdfast.errors")
    found = {name for name, item in vars(errors).items() if inspect.isclass(item)}
    assert errors.__doc__ is not None
    public, control_flow = (
        set(re.findall(r"(?:^|── )([A-Z]\w+)(?=\s{2,}|\n)", part, re.MULTILINE))
        for part in errors.__doc__.split("Control flow")
    )
    assert public == found & set(holdfast.__all__)
    assert control_flow - {"Exception", "HoldfastError"} == found - public


def test_every_module_imports_and_says_what_it_is() -> None:
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if module.name != "holdfast.__main__":
            assert importlib.import_module(module.name).__doc__, module.name


GOOD = """
from dataclasses import dataclass
from typing import Any

from holdfast import (
    DELETE, App, Appended, Backoff, Event, NewEvent, Poll, Projection, TableProjection, Tx, on,
)
from holdfast.testing import FixedClock, given


@dataclass
class FundsCredited:
    amount: int


@dataclass
class Balance:
    account: str
    amount: int = 0


app = App("sqlite:///:memory:", clock=FixedClock())


@app.projection
class Balances(TableProjection[Balance]):
    @on(FundsCredited)
    def credited(self, row: Balance, event: Event[FundsCredited]) -> None:
        row.amount += event.data.amount

    @on("Closed")
    async def closed(self, row: Balance, event: Event[dict[str, Any]]) -> Balance | object:
        return DELETE


@app.projection(name="log", strict=True, poll=Poll(failure_backoff=Backoff(multiplier=3)))
class Log(Projection):
    tables = {"log": "CREATE TABLE log (n integer)", "balance": Balance}

    @on("*")
    def any(self, event: Event[Any], tx: Tx) -> None:
        changed: int = tx.execute("INSERT INTO log VALUES (?)", (event.position,))
        rows: list[tuple[Any, ...]] = tx.fetch("SELECT * FROM log")


def use() -> None:
    appended: Appended = app.journal.append(
        "account-1", [FundsCredited(5), NewEvent({}, type="Closed")], expected_version=0
    )
    app.wait_for(Balances, appended.position)
    with app.running() as running:
        faults: dict[str, str] = running.faulted
    rows: list[Balance] = given(("a", FundsCredited(1))).when(Balances).rows
    given(("a", FundsCredited(1))).when(Balances).expect(Balance("a", 1))
    given(("a", FundsCredited(1))).when(Log).table("log").expect((1,))
"""

WRONG = {
    "row.amount += event.data.amount": ("row.amount += event.data.price", "attr-defined"),
    "event: Event[FundsCredited]": ("event: Event[Missing]", "name-defined"),
    "self, row: Balance, event: Event[FundsCredited]": (
        "self, row: Balance, event: Event[FundsCredited], *, x: str = 5",
        "assignment",
    ),
    "app.wait_for(Balances, appended.position)": (
        'app.wait_for(Balances, "1")',
        "arg-type",
    ),
    "expected_version=0": ('expected_version="0"', "arg-type"),
    "@app.projection\n": ("@app.projection(names=1)\n", "call-overload"),
    "class Log(Projection)": ("class Log", "type-var"),
    'expect(Balance("a", 1))': ('expect(("a", 1))', "arg-type"),
    "rows: list[Balance] =": ("rows: list[FundsCredited] =", "assignment"),
    "Backoff(multiplier=3)": ("Backoff(3)", "call-arg|misc"),
    "changed: int = tx.execute": ("changed: str = tx.execute", "assignment"),
    '.when(Log).table("log")': ('.when(Balances).table("log")', "attr-defined"),
}


def test_users_code_is_typed(tmp_path: Path) -> None:
    """One module with everything right, and one for each way of getting something wrong."""
    (tmp_path / "right.py").write_text(GOOD)
    for number, (old, (new, _)) in enumerate(WRONG.items()):
        assert old in GOOD
        (tmp_path / f"wrong{number}.py").write_text(GOOD.replace(old, new, 1))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file="]
    ran = subprocess.run(
        [*command, *(path.name for path in sorted(tmp_path.iterdir()))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert [line for line in lines if line.startswith("right.py")] == []
    for number, (new, code) in enumerate(WRONG.values()):
        found = [line for line in lines if line.startswith(f"wrong{number}.py")]
        assert re.search(rf"\[({code})\]", "\n".join(found)), (new, found)
