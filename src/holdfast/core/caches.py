"""What is kept in memory, within bounds."""

from __future__ import annotations

from itertools import islice
from typing import Any


def drop_oldest(kept: dict[Any, Any], *, most: int) -> None:
    """Leaves at most so many entries, those that were put in last.

    All others go at once: a dict passes over each entry that is gone whenever its first one is
    looked for, so to drop them one by one takes the longer the more there are.
    """
    for key in [*islice(kept, max(0, len(kept) - most))]:
        del kept[key]
