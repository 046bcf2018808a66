"""A statement that the server runs while its client does something else; see ADR 0025."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.sql.database import Row
from holdfast.sql.postgres.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked for, and the rows that came; None if the statement has failed."""

    params: Mapping[str, Any]
    rows: Sequence[Row] | None


class Prefetch:
    """What was asked for on one connection, one statement at a time."""

    def __init__(self) -> None:
        self._sent: tuple[Prepared, Mapping[str, Any]] | None = None
        self._answer: Answer | None = None

    def ask(self, statement: Prepared, params: Mapping[str, Any]) -> None:
        """Has the server run a statement; until `take_in`, the connection is good for nothing."""
        self._answer = None
        statement.send(params)
        self._sent = statement, params

    def take_in(self) -> None:
        """Waits for what the server is at work on, and keeps it."""
        if self._sent is not None:
            statement, params = self._sent
            self._answer = Answer(params, statement.receive())
            self._sent = None

    def answer(self) -> Answer | None:
        """What has come, once."""
        self.take_in()
        answer, self._answer = self._answer, None
        return answer
