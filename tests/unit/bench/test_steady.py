"""Delays: each append is met with the first commit that covers it."""

import pytest

from bench.commits import Moment
from bench.steady import delays


def test_an_append_ends_with_the_first_commit_that_is_not_before_it() -> None:
    appends = [Moment(1, 0.0), Moment(2, 0.5), Moment(3, 1.0), Moment(5, 2.0)]
    commits = [Moment(1, 0.25), Moment(3, 1.5), Moment(5, 4.0)]
    assert delays(appends, commits) == [0.25, 1.0, 0.5, 2.0]


def test_an_append_that_was_never_committed_has_no_delay() -> None:
    with pytest.raises(IndexError):
        delays([Moment(2, 0.0)], [Moment(1, 1.0)])
