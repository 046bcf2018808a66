"""A package's docstring lists its modules in reading order: none is missing, none is gone."""

import ast
import re
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent

WORLD = Path(__file__).parent.parent / "world"
PACKAGES = [*(init.parent for init in sorted(ROOT.rglob("__init__.py"))), WORLD]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_docstring_lists_every_module(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    listed = re.findall(r"^ *(\w+)  +\S", text, re.MULTILINE)
    modules = [path.stem for path in package.glob("[!_]*.py")]
    folders = [path.parent.name for path in package.glob("*/__init__.py")]
    assert sorted(listed) == sorted(modules + folders)
