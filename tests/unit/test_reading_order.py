"""A package's docstring lists its modules in reading order: none is missing, none is gone."""

import re
from importlib import import_module
from pkgutil import iter_modules

import pytest

PACKAGES = (
    "holdfast.cli",
    "holdfast.cli.demo",
    "holdfast.cli.operate",
    "holdfast.cli.queue",
    "holdfast.cli.run",
    "holdfast.metrics",
    "holdfast.testing",
    "tests.world",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_docstring_lists_every_module(name: str) -> None:
    package = import_module(name)
    listed = re.findall(r"^ *(\w+)  +\S", package.__doc__ or "", re.MULTILINE)
    assert sorted(listed) == sorted(module.name for module in iter_modules(package.__path__))
