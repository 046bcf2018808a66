"""How much memory something takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak_bytes(run: Callable[[], object]) -> int:
    """The most that Python objects have taken at any moment of a call, beside what was there."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
