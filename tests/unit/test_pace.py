"""The pace of runners that follow one journal."""

import threading
from collections.abc import Callable

import pytest

from holdfast.sql.store import wake_pacer as pace
from holdfast.sql.store.wake_pacer import WakePacer

HOUR_SECONDS = 3600.0


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats of half an hour for each runner, so that none of them ends by itself."""
    monkeypatch.setattr(pace, "SHARE_SECONDS", HOUR_SECONDS / 2)
    monkeypatch.setattr(pace, "LONGEST_SECONDS", 2 * HOUR_SECONDS)


def test_one_alone_goes_at_once(slow: None) -> None:
    alone = WakePacer()
    first = alone.begin("a")
    assert alone.left_seconds(first) == 0
    assert alone.begin("a") >= first
    assert alone.left_seconds(alone.begin("a")) == 0


def test_many_begin_once_in_a_beat(slow: None) -> None:
    together = WakePacer()
    beat = together.begin("a")
    assert together.begin("b") == beat
    assert HOUR_SECONDS / 2 < together.left_seconds(beat) <= HOUR_SECONDS
    # Whoever was not there for the last beats does not wait for this one.
    assert together.left_seconds(beat - HOUR_SECONDS) == 0


def test_the_longest_beat_is_for_any_number(slow: None) -> None:
    together = WakePacer()
    beats = {together.begin(number) for number in range(1000)}
    assert len(beats) == 1
    assert HOUR_SECONDS < together.left_seconds(beats.pop()) <= 2 * HOUR_SECONDS


def test_a_beat_ends(monkeypatch: pytest.MonkeyPatch, slow: None) -> None:
    together = WakePacer()
    beat = together.begin("a")
    together.begin("b")
    monkeypatch.setattr(pace, "SHARE_SECONDS", 0.0)
    assert together.left_seconds(beat) == 0
    assert together.begin("a") > beat


def test_whoever_has_not_begun_for_long_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, slow: None
) -> None:
    together = WakePacer()
    together.begin("a")
    together.begin("gone")
    monkeypatch.setattr(pace, "COUNTED_SECONDS", 0.0)
    monkeypatch.setattr(pace, "SHARE_SECONDS", 0.0)
    together.begin("a")
    monkeypatch.setattr(pace, "SHARE_SECONDS", HOUR_SECONDS)
    assert together.left_seconds(together.begin("a")) == 0


def test_the_child_of_a_fork_has_none_of_its_parents_runners(slow: None) -> None:
    together = WakePacer()
    beat = together.begin("a")
    together.begin("b")
    with together._lock:
        together.forked()
    assert together.left_seconds(beat) == 0
    assert together.left_seconds(together.begin("c")) == 0


def test_they_begin_from_any_thread(slow: None) -> None:
    together = WakePacer()
    beats: list[float] = []

    def begin(runner: int) -> Callable[[], None]:
        return lambda: beats.append(together.begin(runner))

    threads = [threading.Thread(target=begin(runner)) for runner in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(beats) == 20
    assert len(set(beats)) == 1
