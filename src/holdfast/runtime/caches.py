"""What is kept in memory, within bounds."""

from __future__ import annotations

from itertools import islice
from typing import Any


def drop_oldest(kept: dict[Any, Any], *, most: int) -> None:
    """Leaves at most so many entries, and of more a tenth less: those that were put in last.

    They go many at once. A dict passes over each entry that is gone whenever its first one is
    looked for, so to drop them one by one takes the longer the more have gone.
    """
    if len(kept) > most:
        for key in [*islice(kept, len(kept) - (most - most // 10))]:
            del kept[key]
