"""Shares: what the claimer of a relay has claimed, in parts for its executors."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.runtime.store.claims import Claim


@dataclass(frozen=True, slots=True)
class Share:
    """A part of what was claimed under a token, for one executor."""

    token: str
    claims: Sequence[Claim]

    @property
    def is_again(self) -> bool:
        """Whether it is a lane whose head has failed before; such a lane is a share by itself."""
        return self.claims[0].has_failed


class Shares:
    """Handed out by the claimer, worked on by the executors."""

    def __init__(self, executors: Callable[[], int], goes_on: Callable[[], bool]) -> None:
        """`executors`: how many there should be, which an operator may change."""
        self._executors, self._goes_on = executors, goes_on
        self._changed = threading.Condition()
        self.waiting: deque[Share] = deque()
        self.orphans: deque[Share] = deque()
        """Shares that a broken connection has left behind: their events have not failed."""
        self._busy = self._again = 0
        """How many executors work; how many open shares are tried again."""
        self.finished = 0
        self._tokens: dict[str, int] = {}
        """The tokens of open claims, with the number of their shares."""

    @property
    def tokens(self) -> list[str]:
        return list(self._tokens)

    @property
    def again(self) -> int:
        """How many more lanes may be tried again now.

        They get half of the executors. The others stay free for events that have not failed.
        """
        return max(1, self._executors() // 2) - self._again

    def wake(self) -> None:
        """Has all look whether it is time to end."""
        with self._changed:
            self._changed.notify_all()

    def idle(self, timeout_seconds: float) -> int:
        """How many executors have nothing to do; waits for the first of them."""
        with self._changed:
            if self._idle <= 0:
                self._changed.wait(timeout_seconds)
            return self._idle

    def is_idle(self, timeout_seconds: float) -> bool:
        """Whether no executor works; waits for that."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._busy or self.waiting), timeout_seconds)

    def add(self, token: str, parts: Sequence[Sequence[Claim]]) -> None:
        with self._changed:
            shares = [Share(token, part) for part in parts]
            self._tokens[token] = len(shares)
            self._again += sum(share.is_again for share in shares)
            self.waiting.extend(shares)
            self._changed.notify_all()

    def reserve(self, token: str) -> None:
        """Has a token renewed whose claims are no shares yet."""
        self._tokens[token] = 1

    def leave(self, token: str, claims: Sequence[Claim]) -> None:
        """Leaves the claims of a reserved token behind."""
        del self._tokens[token]
        self.orphans.append(Share(token, claims))

    def take(self, number: int) -> Share | None:
        """Waits for a share; None when it is time for the executor with this number to end."""

        def ends() -> bool:
            return not self._goes_on() or number >= self._executors()

        with self._changed:
            self._changed.wait_for(lambda: self.waiting or ends())
            if ends():
                return None
            self._busy += 1
            return self.waiting.popleft()

    def take_back(self, shares: deque[Share]) -> Share | None:
        """A share that waits, or an orphan, if there is one."""
        with self._changed:
            return shares.popleft() if shares else None

    def close(self, share: Share, *, was_taken: bool) -> None:
        """A share is done with."""
        with self._changed:
            self._busy -= was_taken
            self._again -= share.is_again
            self.finished += 1
            self._tokens[share.token] -= 1
            if not self._tokens[share.token]:
                del self._tokens[share.token]
            self._changed.notify_all()

    @property
    def _idle(self) -> int:
        return self._executors() - self._busy - len(self.waiting)
