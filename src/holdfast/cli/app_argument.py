"""The app that a command works on: how it is named, found and loaded."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from holdfast.app import App
from holdfast.cli.options import Command, combined
from holdfast.cli.output import start_logging
from holdfast.cli.project_file import project_files
from holdfast.errors import ConfigError

VARIABLE = "HOLDFAST_APP"


@dataclass(frozen=True, slots=True)
class Reference:
    """MODULE:APP, its origin, and the folders in which the module is searched first."""

    text: str
    origin: str
    folders: tuple[Path, ...]


def takes_app(
    *names: str,
    numbers: str | None = None,
    assignments: str | None = None,
    optional: str | None = None,
    log_level: int = logging.WARNING,
) -> Callable[[Command], Command]:
    """Gives a command the arguments `[MODULE:APP] names…`, --app and -v.

    The command is called with the loaded app, which is closed afterwards, and with an argument for
    each name. Only the number of words tells whether the first is the app, so that a name is never
    taken for one. With `numbers` instead of names, the command gets any number of ids, as a tuple.
    With `assignments`, it also gets a tuple of the words that have a `=`. With `optional` instead
    of names, it gets a name or None; alone, a word with a colon is the app.
    """
    shown_names = names
    if numbers is not None:
        shown_names = (f"[{numbers}...]",)
    elif optional is not None:
        shown_names = (f"[{optional}]",)
    if assignments is not None:
        shown_names = (*shown_names, f"[{assignments}...]")

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(words: tuple[str, ...], app: str | None, verbose: bool, **options: Any) -> Any:
            assigned: tuple[tuple[str, ...], ...] = ()
            if assignments is not None:
                assigned = (tuple(word for word in words if "=" in word),)
                words = tuple(word for word in words if "=" not in word)
            values: tuple[Any, ...]
            if numbers is not None:
                given, values = _split_numbers(words, app)
            elif optional is not None:
                given, values = _split_optional(words, optional, app)
            else:
                given, values = _split(words, names, app)
            level = logging.DEBUG if verbose else log_level
            logging.getLogger("holdfast").setLevel(level)
            try:
                reference = find(given)
            except click.UsageError:
                if names and words and ":" in words[0]:  # It is the app, and a name is missing.
                    raise click.UsageError(f"Missing argument {names[-1]!r}.") from None
                raise
            loaded = load(reference)
            start_logging(level)
            with closing(loaded):
                return function(loaded, *values, *assigned, **options)

        options = combined(
            click.argument("words", nargs=-1, metavar=" ".join(["[MODULE:APP]", *shown_names])),
            click.option("--app", metavar="MODULE:APP", help="The app, if not the first argument."),
            click.option("-v", "--verbose", is_flag=True, help="Log to stderr, with tracebacks."),
        )
        return options(command)

    return decorate


def find(given: str | None) -> Reference:
    """The app as given, or as the environment or a pyproject.toml names it."""
    here = Path.cwd()
    if given is not None:
        return Reference(given, "the command line", (here,))
    if from_environment := os.environ.get(VARIABLE):
        return Reference(from_environment, VARIABLE, (here,))
    not_read = ""
    for file in project_files(here):
        if file.app:
            return Reference(file.app, str(file.path), (here, file.path.parent))
        if file.distrust:
            not_read = not_read or f"; {file.path} is not read, because {file.distrust}"
    raise click.UsageError(
        f'which app? Name it as MODULE:APP, or set {VARIABLE}, or put app = "MODULE:APP" under '
        f"[tool.holdfast] in pyproject.toml{not_read}"
    )


def load(reference: Reference) -> App:
    """Imports the module and returns the app in it."""
    module_name, colon, attribute = reference.text.partition(":")
    if not (colon and module_name and attribute):
        raise click.UsageError(
            f"{reference.origin} says {reference.text!r}; an app is named MODULE:APP, "
            "as in bank:app"
        )
    for folder in reversed(reference.folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    module = _import(module_name)
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{reference.text!r}: there is no {name!r} in it{_apps_in(module)}")
        found = getattr(found, name)
    if not isinstance(found, App):
        raise ConfigError(
            f"{reference.text!r} is a {type(found).__name__}, not a holdfast App{_apps_in(module)}"
        )
    return found


def _split(
    words: tuple[str, ...], names: tuple[str, ...], app: str | None
) -> tuple[str | None, tuple[str, ...]]:
    if len(words) == len(names):
        return app, words
    if len(words) < len(names):
        raise click.UsageError(f"Missing argument {names[len(words)]!r}.")
    if len(words) > len(names) + 1:
        raise click.UsageError(f"Got unexpected extra argument {words[len(names) + 1]!r}.")
    return _only_app(words[0], app), words[1:]


def _split_optional(
    words: tuple[str, ...], name: str, app: str | None
) -> tuple[str | None, tuple[str | None]]:
    if not words:
        return app, (None,)
    if len(words) == 1 and ":" in words[0]:
        return _only_app(words[0], app), (None,)
    given, (value,) = _split(words, (name,), app)
    return given, (value,)


def _split_numbers(
    words: tuple[str, ...], app: str | None
) -> tuple[str | None, tuple[tuple[int, ...]]]:
    if words and not words[0].isdecimal():
        app, words = _only_app(words[0], app), words[1:]
    for word in words:
        if not word.isdecimal():
            raise click.UsageError(f"{word!r} is not an id; ids are whole numbers.")
    return app, (tuple(map(int, words)),)


def _only_app(word: str, app: str | None) -> str:
    if app is not None:
        raise click.UsageError(f"the app is named twice: {word!r} and --app {app!r}")
    return word


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise ConfigError(
                f"there is no module {missing!r} in {Path.cwd()} or among the installed ones"
            ) from error
        raise ConfigError(f"can't import {name!r}: {_described(error)}") from error


def _described(error: BaseException) -> str:
    """The error, and the last line of the user's own code in its traceback."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return what  # Its text names file and line.
    ours = str(Path(__file__).parents[1])
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((ours, importlib.__file__, "<frozen"))
    ]
    return f"{what} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else what


def _apps_in(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return f"; the module {module.__name__!r} has no App"
    return "; the module has " + ", ".join(f"{module.__name__}:{name}" for name in apps)
