"""The way of one live event is short, and the page on the architecture tells it as it is."""

from pathlib import Path

import pytest

from tests.support.walk import WALKS, Walk, trace

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
MOST_MODULES = 15
"""Maximum of modules that a live event of a TableProjection passes, from the read to the signal."""


@pytest.mark.parametrize("name", WALKS)
def test_the_page_tells_the_walk_of_an_event(postgres_url: str, name: str) -> None:
    walk = trace(postgres_url, *WALKS[name])
    passed, listed = set(walk.modules), set(_listed(name))
    # A claimer goes on beside its executors, so that a walk may end before all has been seen.
    is_told = passed <= listed if name.endswith("outbox") else passed == listed
    assert is_told, f"python -m tests.support.walk shows it: {walk}, {passed ^ listed}"


def test_the_walk_of_a_table_is_short() -> None:
    assert len(_listed("TableProjection, from the log")) <= MOST_MODULES


def _listed(name: str) -> list[str]:
    """The modules that the page lists for a walk."""
    text = PAGE.read_text(encoding="utf-8").partition(f"**{name}**")[2]
    return [part for part in text.partition("\n\n")[0].split("`") if part.endswith(".py")]


def test_a_walk_counts_modules_once() -> None:
    walk = Walk()
    walk.calls.update([("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "f")])
    assert str(walk) == "2 modules, 3 functions"
