"""Parameters of a statement: as the driver writes them, and as the server numbers them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

_MARK = re.compile(r"(?P<percent>%%)|(?P<next>%s)|%\((?P<name>\w+)\)s|(?P<other>%)")
_BINARY = re.compile(r"%\((\w+)\)b")


@dataclass(frozen=True, slots=True)
class NumberedStatement:
    """A statement with parameters written `$1`; their names in that order, if they have some."""

    text: str
    parameters: int
    names: Sequence[str]


def plain(sql: str) -> str:
    """The statement with nothing said of how parameters are sent."""
    return _BINARY.sub(r"%(\1)s", sql)


def numbered(sql: str) -> NumberedStatement | None:
    """The statement as the server takes it; None if only the driver knows how."""
    marks = [*_MARK.finditer(sql)]
    kinds = {mark.lastgroup for mark in marks} - {"percent"}
    if len(kinds) > 1 or "other" in kinds:
        return None
    names = [*dict.fromkeys(mark["name"] for mark in marks if mark["name"])]
    numbers = {name: number for number, name in enumerate(names, 1)}
    following = count(1)

    def number(mark: re.Match[str]) -> str:
        if mark["percent"]:
            return "%"
        return f"${numbers[mark['name']] if numbers else next(following)}"

    text = _MARK.sub(number, sql)
    return NumberedStatement(text, len(names) or next(following) - 1, names)
