"""The page on the architecture shows the tree as it is, and names files that exist."""

import re
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
PROJECT = Path(__file__).parents[2]
TEXT = (PROJECT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
TREE = TEXT.partition("```text\n")[2].partition("```")[0]


def test_the_tree_has_every_package_and_every_module_at_the_top() -> None:
    packages = {init.parent.relative_to(ROOT) for init in ROOT.rglob("*/__init__.py")}
    modules = {Path(path.stem) for path in ROOT.glob("[!_]*.py")}
    assert set(_drawn()) == packages | modules


def _drawn() -> list[Path]:
    """The folders and modules in the tree, by their indentation."""
    drawn, parents = [], [Path()]
    for indent, name in re.findall(r"^( +)([a-z_]+)/? ", TREE, re.MULTILINE):
        depth = len(indent) // 2
        parents[depth:] = [parents[depth - 1] / name]
        drawn.append(parents[depth])
    return drawn


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|src)/[\w/.]+)`", TEXT))))
def test_a_path_that_is_named_exists(path: str) -> None:
    assert (PROJECT / path).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", TEXT))))
def test_a_module_that_is_named_exists(name: str) -> None:
    assert [*ROOT.rglob(name.removeprefix("src/holdfast/"))] or (PROJECT / name).exists()
