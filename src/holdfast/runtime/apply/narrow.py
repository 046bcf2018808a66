"""How the event is found that is to blame for a refused transaction: by trying fewer together."""

from __future__ import annotations


class Narrowing:
    """How many events the next transaction may have.

    A refused transaction halves it, down to the one event that is to blame. Each success doubles
    it again.
    """

    def __init__(self, most: int) -> None:
        self.most = self.limit = most

    def refused(self, tried: int, *, good: int | None = None) -> bool:
        """Narrows after a refusal; False: the one event that was tried is to blame.

        `good`: that many of the tried events come before the culprit.
        """
        if tried <= 1:
            return False
        self.limit = max(1, tried // 2 if good is None else good)
        return True

    def succeeded(self, events: int) -> None:
        if events >= self.limit:
            self.limit = min(2 * self.limit, self.most)

    def took_long(self, events: int, *, least: int) -> None:
        """A transaction took longer than it should."""
        self.limit = max(least, min(events, self.limit) // 2)
