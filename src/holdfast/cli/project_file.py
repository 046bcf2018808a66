"""The app that a pyproject.toml names, of this folder or one above it.

What it names is imported. So it is read only where nobody else can have written it.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError

NAME = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A file, and the app that it names; or why the file is not read."""

    path: Path
    app: str | None = None
    distrust: str | None = None


def project_files(here: Path) -> Iterator[ProjectFile]:
    """The files that name an app, or are not to be trusted; that of this folder comes first."""
    for folder in _folders(here):
        path = folder / NAME
        if not path.is_file():
            continue
        distrust = _distrust(path) or _distrust(folder)
        if distrust is not None:
            yield ProjectFile(path, distrust=distrust)
        elif (app := _app_in(path)) is not None:
            yield ProjectFile(path, app)


def _folders(here: Path) -> Iterator[Path]:
    """This folder and those above it, up to the repository's root or the home folder."""
    home = Path.home().resolve()
    for folder in (here, *here.parents):
        yield folder
        if folder == home or (folder / ".git").exists():
            return


def _distrust(path: Path) -> str | None:
    """Why others can have written a file or a folder; None if they can't."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to another user"
    is_groups = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    if is_groups or found.st_mode & stat.S_IWOTH:
        return f"{path} can be written by other users"
    return None


def _is_own_group(number: int) -> bool:
    """Whether a group is root's, or the group that many systems make for each user alone."""
    if number == 0:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(number)
    except KeyError:
        return False
    is_named_alike = group.gr_name == user.pw_name and number == user.pw_gid
    return is_named_alike and not {*group.gr_mem} - {user.pw_name}


def _app_in(file: Path) -> str | None:
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read {file}: {error}") from error
    tool = settings.get("tool", {})
    ours = tool.get("holdfast", {}) if isinstance(tool, dict) else {}
    named = ours.get("app") if isinstance(ours, dict) else None
    if named is not None and not isinstance(named, str):
        raise ConfigError(f'{file}: app under [tool.holdfast] must be text like "bank:app"')
    return named
