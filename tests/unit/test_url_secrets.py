"""A password is never shown, whatever it is made of and wherever the URL has it."""

import socket
from collections.abc import Callable
from urllib.parse import quote

import hypothesis
import pytest
from hypothesis import strategies as st

from holdfast import App, HoldfastError

MARK = "Xq7"
"""Begins every part of a password, so that a piece of it is recognised anywhere."""

PIECES = st.lists(st.text("abc:/?#[]@!$&'()*+,;=%. \\\"-_~é💡", max_size=4), min_size=1, max_size=4)
PASSWORDS = PIECES.map(lambda pieces: "".join(f"{MARK}{piece}" for piece in pieces))
PROPER: list[Callable[[str], str]] = [
    lambda p: f"postgresql://me:{quote(p, safe='')}@127.0.0.1:{{port}}/bank",
    lambda p: f"postgres://me:{quote(p, safe='')}@127.0.0.1:{{port}}/bank?sslmode=disable",
    lambda p: f"postgresql://127.0.0.1:{{port}}/bank?user=me&password={quote(p, safe='')}",
    lambda p: f"postgresql://me@127.0.0.1:{{port}}/bank?password={quote(p, safe='')}&a=b",
]
CARELESS: list[Callable[[str], str]] = [
    lambda p: f"postgresql://me:{p}@127.0.0.1:{{port}}/bank",
    lambda p: f"postgres://me:{p}@127.0.0.1:{{port}}",
    lambda p: f"postgresql:/me:{p}@127.0.0.1/bank",
    lambda p: f"postgresql:me:{p}@127.0.0.1/bank",
    lambda p: f"postgresql+asyncpg://me:{p}@127.0.0.1/bank",
    lambda p: f"mysql://me:{p}@127.0.0.1/bank",
    lambda p: f"me:{p}@127.0.0.1/bank",
    lambda p: f"host=127.0.0.1 user=me password={quote(p, safe='')} dbname=bank",
    lambda p: "password='" + p.replace("\\", "\\\\").replace("'", "\\'") + "' host=127.0.0.1",
    lambda p: f"sqlite://me:{p}@127.0.0.1/bank",
    lambda p: f"sqlite:///me:{p}@127.0.0.1/bank?mode=ro",
]


@pytest.fixture(scope="module")
def closed_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("shape", [*PROPER, *CARELESS])
def test_a_password_is_never_shown(shape: Callable[[str], str], closed_port: int) -> None:
    @hypothesis.settings(max_examples=25)
    @hypothesis.example(password="Xq7%aa")
    @hypothesis.given(password=PASSWORDS)
    def is_not_shown(password: str) -> None:
        url = shape(password).replace("{port}", str(closed_port))
        shown = []
        try:
            with App(url) as app:
                shown += [str(app.url), repr(app.url), repr(app)]
                app.journal.head()
        except HoldfastError as error:
            shown += _texts(error)
        assert shown
        for text in shown:
            assert MARK not in text

    is_not_shown()


def _texts(error: BaseException) -> list[str]:
    """What a traceback would print of an error and of what came before it."""
    texts = [str(error), repr(error)]
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return texts if before is None else texts + _texts(before)
