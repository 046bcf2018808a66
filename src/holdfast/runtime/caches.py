"""The limit of a cache."""

from __future__ import annotations

from itertools import islice
from typing import Any


def drop_oldest(cache: dict[Any, Any], *, most: int) -> None:
    """If a cache has more than `most` entries, leaves the newest nine tenths of `most`.

    Dropping entries one by one would be slow: a dict skips the slots of all deleted entries when it
    looks for its first one.
    """
    if len(cache) > most:
        for key in [*islice(cache, len(cache) - (most - most // 10))]:
            del cache[key]
