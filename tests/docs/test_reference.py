"""The reference names everything there is: a name, setting, command or table can't be forgotten."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import holdfast
import holdfast.kafka
import holdfast.sqlalchemy
import holdfast.testing
from holdfast import App, Backoff, Breaker, HoldfastError, Limits, Policy, Poll, RetryBudget
from holdfast.catalog import DEFAULTS, ProjectionSettings
from holdfast.cli import cli
from holdfast.kafka import KafkaSource
from tests.support.pages import ROOT, pages

REFERENCE = ROOT / "docs" / "reference"


def sections(page: Path) -> dict[str, str]:
    """The text under each heading, up to the next heading."""
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def section_of(page: Path, heading: str) -> dict[str, str]:
    """The sections below one heading of the second level."""
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall(
        rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    parts = re.split(r"^### (.+)$", found, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


API = sections(REFERENCE / "api.md")
ERRORS = sections(REFERENCE / "errors.md")


def is_error(name: str) -> bool:
    value = getattr(holdfast, name)
    return isinstance(value, type) and issubclass(value, HoldfastError)


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    if is_error(name):
        assert name in ERRORS
        assert f"`{name}`" in API["Errors"]
    else:
        assert name in API


@pytest.mark.parametrize("name", [n for n in holdfast.__all__ if not is_error(n)])
def test_every_public_member_is_documented(name: str) -> None:
    value = getattr(holdfast, name)
    if not isinstance(value, type) or value in (Poll, Backoff):
        return  # Poll and Backoff: see the settings.
    text = API[name]
    for member in [m for m in dir(value) if not (m.startswith("_") or hasattr(Exception, m))]:
        assert re.search(rf"`@?{member}\b", text), f"{name}.{member} is not in api.md"


@pytest.mark.parametrize("name", holdfast.kafka.__all__)
def test_every_name_of_kafka_is_documented(name: str) -> None:
    assert name in API or re.search(rf"`{name}\b", API["Envelopes"])
    if issubclass(getattr(holdfast.kafka, name), HoldfastError):
        assert name in ERRORS


@pytest.mark.parametrize("name", holdfast.sqlalchemy.__all__)
def test_every_name_of_sqlalchemy_is_documented(name: str) -> None:
    assert re.search(rf"`{name}\(", API["SQLAlchemy"])


@pytest.mark.parametrize("name", holdfast.testing.__all__)
def test_every_testing_helper_is_documented(name: str) -> None:
    assert re.search(rf"`{name}\b", API["Testing"])


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    tree = (inspect.getdoc(inspect.getmodule(HoldfastError)) or "").partition("Control flow")[0]
    names = re.findall(r"^.*── \w+", tree, re.MULTILINE)
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert "\n".join(["HoldfastError", *names]) in page
    assert len(names) == len([n for n in holdfast.__all__ if is_error(n)]) - 1


def settings() -> Iterator[tuple[str, str, Any]]:
    for heading, function in (
        ("App", App.__init__),
        ("KafkaSource", KafkaSource.__init__),
    ):
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in ("self", "cls"):
                yield heading, name, parameter.default
    assert DEFAULTS.keys() == ProjectionSettings.__annotations__.keys()
    yield from (("Projection", name, default) for name, default in DEFAULTS.items())
    for cls in (Poll, Backoff, Policy, Breaker, RetryBudget, Limits):
        for field in dataclasses.fields(cls):
            yield cls.__name__, field.name, getattr(cls(), field.name)


@pytest.mark.parametrize(("heading", "name", "default"), list(settings()))
def test_every_setting_is_documented_with_its_default(
    heading: str, name: str, default: Any
) -> None:
    text = section_of(REFERENCE / "settings.md", heading)[name]
    found = re.search(r"^Default: `(.+)`$", text, re.MULTILINE)
    if default is inspect.Parameter.empty:
        assert found is None
    else:
        assert found is not None, f"{name} has no line that begins with Default:"
        assert eval(found[1], vars(holdfast).copy()) == default


def commands(
    command: click.Command = cli, path: str = "holdfast"
) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), list(commands()))
def test_every_command_and_option_is_documented(path: str, command: click.Command) -> None:
    found = sections(REFERENCE / "cli.md")
    assert path in found, f"cli.md has no heading {path!r}"
    text = found[path] + found["Options of all commands"]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            for option in parameter.opts:
                assert re.search(rf"`{option}\b", text), f"{path} {option} is not in cli.md"
        elif isinstance(parameter, click.Argument):
            for word in str(parameter.metavar or parameter.name).split():
                assert word.strip("[]") in found[path], f"{path} {word} is not in cli.md"


def columns_of(app: App) -> list[tuple[str, str]]:
    with app._database.reading() as connection:
        if str(app.url).startswith("sqlite"):
            sql = (
                "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c "
                "WHERE t.type = 'table' AND t.name LIKE 'holdfast%'"
            )
        else:
            sql = (
                "SELECT table_name, column_name FROM information_schema.columns "
                "WHERE table_schema = current_schema()"
            )
        return [(table, column) for table, column in connection.tx.fetch(sql)]


def test_every_table_and_column_is_documented(store_url: str) -> None:
    found = sections(REFERENCE / "schema.md")
    with App(store_url) as app:
        app.migrate()
        columns = columns_of(app)
    assert ("holdfast_event", "position") in columns
    for table, column in columns:
        assert f"`{column}`" in found[table], f"{table}.{column} is not in schema.md"


LINK = re.compile(r"\[[^\]]*\]\((?!https?://)([^)#\s]*)(#[^)\s]*)?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    code = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    text = code.sub("", page.read_text(encoding="utf-8"))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(plain if plain not in found else f"{plain}-1")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path) if path else page
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        if anchor:
            assert anchor[1:] in anchors(target), f"{page.name}: {path} has no {anchor}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in pages():
        relative = page.relative_to(ROOT)
        if relative.parts[0] == "docs" and relative.parts[1] not in ("adr", "README.md"):
            assert str(Path(*relative.parts[1:])) in index


def test_every_decision_is_in_the_list() -> None:
    folder = ROOT / "docs" / "adr"
    records = sorted(p for p in folder.glob("[0-9]*.md"))
    listed = (folder / "README.md").read_text(encoding="utf-8")
    assert records
    for number, record in enumerate(records, 1):
        text = record.read_text(encoding="utf-8")
        assert record.name.startswith(f"{number:04}-")
        assert text.startswith(f"# {number:04}. ")
        title = text.splitlines()[0].removeprefix(f"# {number:04}. ")
        assert f"[{title}]({record.name})" in listed
        for heading in ("Context", "Decision", "Consequences"):
            assert f"\n## {heading}\n" in text
