"""Settled positions, against a model of appends that begin, draw, commit and roll back anywhere.

The reader asks in separate statements; between any two of them the model lets others go on. What
must hold: the reader never passes a position that is not decided yet, so it loses none and gets
them in order; and it goes on when nothing is in flight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from holdfast.sql.postgres.settled import settled_rows

Row = tuple[int]
Reader = Callable[..., tuple[Sequence[Row], bool]]

MAX_IN_FLIGHT = 4
SEEDS = 2_000


@dataclass
class Append:
    """A transaction: it looks at the sequence, takes its lock, draws, and ends."""

    bound: int
    has_lock: bool = False
    is_visible: bool = False
    positions: list[int] = field(default_factory=list)


class Model:
    """The database as readers see it, and everybody else's moves."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.sequence = 0
        self.visible: set[int] = set()
        self.in_flight: list[Append] = []
        self.is_quiet = False

    def let_others_go_on(self) -> None:
        if not self.is_quiet:
            for _ in range(self.chance.choice((0, 1, 3, 9, 20))):
                self._move()

    def end_all(self) -> None:
        """Everybody commits or rolls back, and nobody begins."""
        for append in self.in_flight:
            if self.chance.random() < 0.5:
                self.visible.update(append.positions)
        self.in_flight.clear()
        self.is_quiet = True

    def _move(self) -> None:
        append = self.chance.choice([None, *self.in_flight])
        if append is None:
            if len(self.in_flight) < MAX_IN_FLIGHT:
                self.in_flight.append(Append(bound=self.sequence))
        elif append.is_visible:  # The lock is released a moment after the rows are visible.
            self.in_flight.remove(append)
        elif not append.has_lock:
            append.has_lock = True
        elif not append.positions or self.chance.random() < 0.3:
            self.sequence += 1
            append.positions.append(self.sequence)
        elif self.chance.random() < 0.7:
            append.is_visible = True
            self.visible.update(append.positions)
        else:
            self.in_flight.remove(append)

    def undecided(self) -> list[int]:
        """Positions that are drawn and neither visible nor rolled back."""
        return [p for a in self.in_flight if not a.is_visible for p in a.positions]

    def read(self, after: int, limit: int) -> list[Row]:
        self.let_others_go_on()
        return [(p,) for p in sorted(p for p in self.visible if p > after)[:limit]]

    def drawn(self) -> int:
        self.let_others_go_on()
        return self.sequence

    def bound(self) -> int | None:
        self.let_others_go_on()
        return min((a.bound for a in self.in_flight if a.has_lock), default=None)


def follow(reader: Reader, seed: int) -> None:
    """Reads on while others append, and checks every answer."""
    model = Model(Random(seed))
    limit = model.chance.randint(1, 6)
    seen: list[int] = []
    for _ in range(12):
        _read_on(reader, model, seen, limit)
    model.end_all()
    while model.visible - set(seen):
        before = len(seen)
        held = _read_on(reader, model, seen, limit)
        assert len(seen) > before, "stands still though nothing is in flight"
        assert not held, "held back though nothing is in flight"
    assert seen == sorted(model.visible)


def _read_on(reader: Reader, model: Model, seen: list[int], limit: int) -> bool:
    after = seen[-1] if seen else 0
    rows, held = reader(
        after, read=lambda: model.read(after, limit), drawn=model.drawn, bound=model.bound
    )
    seen += [row[0] for row in rows]
    last = seen[-1] if seen else 0
    assert seen == sorted(set(seen)), "out of order or twice"
    assert not [p for p in model.undecided() if p <= last], "passed what is not decided yet"
    assert not [p for p in model.visible if p <= last and p not in seen], "passed what is there"
    return held


@pytest.mark.parametrize("block", range(2))
def test_nothing_is_passed_lost_or_waited_for_in_vain(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        follow(settled_rows, seed)


def passes_every_hole(after: int, *, read: Any, drawn: Any, bound: Any) -> Any:
    return read(), False


def does_not_read_again(after: int, *, read: Any, drawn: Any, bound: Any) -> Any:
    rows = read()
    return settled_rows(after, read=lambda: rows, drawn=drawn, bound=bound)


def ignores_the_locks(after: int, *, read: Any, drawn: Any, bound: Any) -> Any:
    return settled_rows(after, read=read, drawn=drawn, bound=lambda: None)


def ignores_what_is_drawn(after: int, *, read: Any, drawn: Any, bound: Any) -> Any:
    return settled_rows(after, read=read, drawn=lambda: 10**9, bound=bound)


def looks_at_the_locks_too_early(after: int, *, read: Any, drawn: Any, bound: Any) -> Any:
    lowest = bound()
    return settled_rows(after, read=read, drawn=drawn, bound=lambda: lowest)


def stops_at_every_hole(after: int, *, read: Any, drawn: Any, bound: Any) -> Any:
    rows = read()
    good = [row for index, row in enumerate(rows) if row[0] == after + index + 1]
    return good, len(good) < len(rows)


BROKEN = [
    passes_every_hole,
    does_not_read_again,
    ignores_the_locks,
    ignores_what_is_drawn,
    looks_at_the_locks_too_early,
    stops_at_every_hole,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_the_model_finds_a_broken_reader(broken: Reader) -> None:
    def search() -> None:
        for seed in range(SEEDS):
            follow(broken, seed)

    with pytest.raises(AssertionError, match=r"passed|stands still"):
        search()


def test_without_a_hole_nothing_else_is_asked() -> None:
    def never() -> int:
        raise AssertionError("asked")

    rows = [(4,), (5,), (6,)]
    assert settled_rows(3, read=lambda: rows, drawn=never, bound=never) == (rows, False)
    assert settled_rows(3, read=lambda: [], drawn=never, bound=never) == ([], False)


def test_what_precedes_an_append_in_flight_is_returned() -> None:
    def read() -> list[Row]:
        return [(1,), (2,), (4,), (5,)]

    # 3 is in flight: its append saw the sequence at 2.
    assert settled_rows(0, read=read, drawn=lambda: 5, bound=lambda: 2) == ([(1,), (2,)], True)
    # 3 was rolled back; another append is in flight beyond 5.
    assert settled_rows(0, read=read, drawn=lambda: 6, bound=lambda: 5) == (read(), False)
    assert settled_rows(0, read=read, drawn=lambda: 5, bound=lambda: None) == (read(), False)
    # What follows the decided part without a hole is settled, though drawn after the look.
    assert settled_rows(0, read=read, drawn=lambda: 4, bound=lambda: None) == (read(), False)
