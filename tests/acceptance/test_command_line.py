"""The command itself: help, version, and which app it works on."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import COMMANDS
from tests.support.command import Place

JOURNAL_COMMANDS = ("append", "export", "head", "import", "tail")


def test_help_lists_every_command(place: Place) -> None:
    place.fresh = True
    listed = place.ok("--help").out
    assert all(f"  {name} " in listed for name in COMMANDS)
    listed = place.ok("journal", "--help").out
    assert all(f"  {name} " in listed for name in JOURNAL_COMMANDS)
    assert "holdfast reset [OPTIONS] [MODULE:APP] PROJECTION" in place.ok("reset", "--help").out


def test_the_console_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("holdfast")
    said = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("holdfast 0.")


def test_the_app_may_be_an_argument_an_option_a_variable_or_a_setting(place: Place) -> None:
    for arguments in (["head", "bank:app"], ["head", "--app", "bank:app"]):
        assert place.ok("journal", *arguments).out == "0\n"
    assert place.ok("journal", "head", HOLDFAST_APP="bank:app").out == "0\n"
    below = place.folder / "below"
    below.mkdir()
    place.write("pyproject.toml", '[tool.holdfast]\napp = "bank:app"\n')
    for folder in (place.folder, below):
        assert Place.run(_in(place, folder), "journal", "head").out == "0\n"


def test_the_argument_comes_before_the_variable_and_that_before_the_setting(place: Place) -> None:
    place.write("pyproject.toml", '[tool.holdfast]\napp = "nowhere:app"\n')
    assert place.ok("journal", "head", HOLDFAST_APP="bank:app").out == "0\n"
    assert place.ok("journal", "head", "bank:app", HOLDFAST_APP="nowhere:app").out == "0\n"


def test_an_app_may_be_an_attribute_of_an_attribute(place: Place) -> None:
    place.write("inner.py", "import types, bank\nbanks = types.SimpleNamespace(first=bank.app)\n")
    assert place.ok("journal", "head", "inner:banks.first").out == "0\n"


def test_a_name_with_a_colon_is_never_taken_for_the_app(place: Place) -> None:
    append = ("journal", "append", "bank:app", "--type", "Credited", "--data", '{"amount": 1}')
    said = place.ok(*append, "--app", "bank:app", "--json")
    assert said.json["stream"] == "bank:app"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status"], "which app?"),
        (["status", "bank"], "which app?"),
        (["status", "bank:"], "an app is named MODULE:APP"),
        (["status", "bank:app", "--app", "bank:app"], "named twice"),
        (["status", "bank:app", "balances", "more"], "unexpected extra argument"),
        (["reset"], "Missing argument 'PROJECTION'"),
        (["explain", "bank:app"], "Missing argument 'PROJECTION'"),
        (["outbox", "mode", "bank:app", "ledger"], "Missing argument 'MODE'"),
        (["journal", "import", "bank:app", "x", "y"], "unexpected extra argument"),
        (["journal", "append", "bank:app", "s", "--type", "T"], "Missing option '--data'"),
        (["status", "bank:app", "--interval", "0"], "--interval"),
        (["no-such-command"], "No such command"),
    ],
)
def test_a_wrong_command_line_is_code_2(place: Place, arguments: list[str], said: str) -> None:
    refused = place.run(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere:app", "there is no module 'nowhere' in"),
        ("bank.inner:app", "there is no module 'bank.inner' in"),
        ("bank:apq", "'bank:apq': there is no 'apq' in it; the module has bank:app"),
        ("bank:Balances", "'bank:Balances' is a type, not a holdfast App; the module has bank:app"),
        ("json:app", "there is no 'app' in it; the module 'json' has no App"),
    ],
)
def test_an_app_that_does_not_exist(place: Place, reference: str, said: str) -> None:
    assert said in place.run("status", reference).error


BROKEN = {
    "NameError: name 'oops' is not defined (broken.py, line 2)": "x = 1\noops\n",
    "invalid syntax (broken.py, line 1)": "import from\n",
    "ModuleNotFoundError: No module named 'nowhere' (broken.py, line 1)": "import nowhere\n",
    "SystemExit: 7 (broken.py, line 1)": "raise SystemExit(7)\n",
    "ZeroDivisionError: division by zero (helper.py, line 1)": "import helper\n",
    "ConfigError: two projections are named 'balances'": (
        "import bank\n@bank.app.projection(name='balances')\nclass Others(bank.Balances): pass\n"
    ),
    "handler 'at' is for int, which can't be an event": (
        "import bank\nfrom holdfast import *\n@bank.app.projection\n"
        "class P(Projection):\n    @on(int)\n    def at(self, event, tx): pass\n"
    ),
    "ConfigError: can't read the database URL 'mysql://root@db'": (
        "from holdfast import App\napp = App('mysql://root@db')\n"
    ),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_module_that_fails_to_import(place: Place, said: str) -> None:
    place.write("helper.py", "1 / 0\n")
    place.write("broken.py", BROKEN[said])
    error = place.run("status", "broken:app").error
    assert error.startswith("can't import 'broken': ")
    assert said in error
    assert place.contents() == {}


def test_characters_that_the_output_can_not_show_are_escaped(place: Place) -> None:
    append = ("journal", "append", "bank:app", "5 €", "--type", "Credited")
    place.ok(*append, "--data", '{"amount": 1}')
    said = place.ok("journal", "tail", "bank:app", PYTHONIOENCODING="latin-1").out
    assert r"5 \u20ac v1" in said


def test_v_shows_the_traceback_of_a_failed_import(place: Place) -> None:
    place.fresh = True
    place.write("broken.py", "def f():\n    oops\nf()\n")
    refused = place.run("status", "broken:app", "-v")
    assert refused.code == 1
    assert 'broken.py", line 2, in f' in refused.err
    assert refused.err.splitlines()[-1].startswith("holdfast: can't import 'broken'")


@pytest.mark.parametrize("text", ["[tool.holdfast", "[tool.holdfast]\napp = 5\n"])
def test_a_pyproject_that_can_not_be_read(place: Place, text: str) -> None:
    place.write("pyproject.toml", text)
    assert "pyproject.toml" in place.run("status").error


def _in(place: Place, folder: Path) -> Place:
    other = Place.__new__(Place)
    other.folder, other.url = folder, place.url
    return other
