"""Which pyproject.toml may name the app: none that others can have written."""

import os
from pathlib import Path

import click
import pytest

from holdfast.cli.app_argument import find

TEXT = '[tool.holdfast]\napp = "bank:app"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, three below the temporary one, which is outside of the home folder."""
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HOLDFAST_APP", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder


def write(folder: Path) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(TEXT)
    file.chmod(0o644)
    return file


def refusal() -> str:
    with pytest.raises(click.UsageError) as refused:
        find(None)
    return str(refused.value)


def test_a_file_above_names_the_app(here: Path) -> None:
    file = write(here.parents[1])
    assert (find(None).text, find(None).origin) == ("bank:app", str(file))
    assert find(None).folders == (here, file.parent)


@pytest.mark.parametrize("is_home", [False, True])
def test_nothing_above_the_repository_or_the_home_folder_is_read(
    here: Path, is_home: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = here.parent
    write(root.parent)
    if is_home:
        monkeypatch.setenv("HOME", str(root))
    else:
        (root / ".git").mkdir()
    assert "is not read" not in refusal()
    write(root)
    assert find(None).text == "bank:app"


@pytest.mark.parametrize("mode", [0o646, 0o664])
@pytest.mark.parametrize("of", ["file", "folder"])
def test_what_others_can_write_is_not_read(here: Path, mode: int, of: str) -> None:
    file = write(here.parent)
    path = file if of == "file" else file.parent
    if os.geteuid() == 0:
        os.chown(path, -1, 54_321)  # Of root's own group it would be trusted.
    elif mode == 0o664:
        pytest.skip("the user's own group may write")
    path.chmod(mode if of == "file" else mode | 0o111)
    assert f"{file} is not read, because {path} can be written by other users" in refusal()


@pytest.mark.parametrize("of", ["file", "folder"])
def test_what_another_user_owns_is_not_read(
    here: Path, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(here.parent)
    path = file if of == "file" else file.parent
    if os.geteuid() == 0:
        os.chown(path, 54_321, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 54_321)
        path = file
    assert f"{file} is not read, because {path} belongs to another user" in refusal()
