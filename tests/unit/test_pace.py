"""The pace of runners that follow one journal in one process."""

import time

import pytest

from holdfast.sql import pace
from holdfast.sql.pace import Pace
from tests.support.postgres import wait_until

WAIT_SECONDS = 30.0


class Follower:
    """Anything that can be gone."""


def test_one_alone_goes_at_once() -> None:
    alone, follower = Pace(), Follower()
    alone.join(follower)
    assert alone.left_seconds(alone.begin()) == 0


def test_many_begin_once_in_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SHARE_SECONDS", 1800.0)
    monkeypatch.setattr(pace, "LONGEST_SECONDS", 7200.0)
    together, followers = Pace(), [Follower(), Follower()]
    for follower in followers:
        together.join(follower)
    beat = together.begin()
    assert together.begin() == beat
    assert 0 < together.left_seconds(beat) <= 3600
    # Whoever was not there for the last beats does not wait for this one.
    assert together.left_seconds(beat - 3600) == 0
    followers.pop(0)
    assert together.left_seconds(beat) == 0


def test_a_beat_ends() -> None:
    together, followers = Pace(), [Follower(), Follower()]
    for follower in followers:
        together.join(follower)
    beat = together.begin()
    wait_until(lambda: together.left_seconds(beat) == 0, WAIT_SECONDS, "its end")
    assert beat < together.begin() <= time.monotonic()


def test_no_number_of_runners_makes_it_longer_than_the_longest() -> None:
    together, followers = Pace(), [Follower() for _ in range(1000)]
    for follower in followers:
        together.join(follower)
    assert 0 < together.left_seconds(together.begin()) <= pace.LONGEST_SECONDS


def test_the_child_of_a_fork_has_none_of_its_parents_runners() -> None:
    together, followers = Pace(), [Follower(), Follower()]
    for follower in followers:
        together.join(follower)
    together.forked()
    assert together.left_seconds(together.begin()) == 0
