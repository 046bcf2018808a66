"""Tracebacks as text, as the standard library would print them."""

import re
import traceback

import pytest

from holdfast.runtime.store.faults import MAX_CAUSES, format_error


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def within(first: BaseException, second: BaseException) -> BaseException:
    """The second one, raised while the first was handled."""
    try:
        try:
            raise first
        except BaseException:
            raise second  # noqa: B904
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        raised(ValueError("alone")),
        raised(ValueError("second"), raised(OSError("first"))),
        within(KeyError("first"), ValueError("second")),
        within(KeyError("hidden"), raised(ValueError("second"), raised(OSError("first")))),
    ],
    ids=["alone", "from a cause", "in between", "both"],
)
def test_it_is_what_the_standard_library_prints(error: BaseException) -> None:
    """But for the marks under parts of lines."""
    expected = "".join(traceback.format_exception(error))
    assert format_error(error) == re.sub(r"\n +\^+(?=\n)", "", expected)


def test_an_error_that_comes_from_itself_is_told_once() -> None:
    error = raised(ValueError("alone"))
    error.__cause__ = error
    assert format_error(error).count("ValueError: alone") == 1


def test_a_long_chain_ends() -> None:
    error = raised(ValueError("0"))
    for n in range(1, 100):
        error = raised(ValueError(str(n)), error)
    assert format_error(error).count("Traceback") == MAX_CAUSES + 1
