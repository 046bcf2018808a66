"""W2: every account's versions follow each other, and its check finds what is wrong."""

from contextlib import closing

import pytest

from bench import waves
from bench.case import Sample, WrongResult
from bench.cases.growth import rate
from bench.cases.hand_written import sets
from bench.commits import Moment
from bench.connection import connect

SAMPLE = Sample(events=1, seconds=1.0, cpu_seconds=0.0)


def test_versions_follow_each_other_and_waves_share_no_account(store_url: str) -> None:
    wave = waves.WAVE_ACCOUNTS * waves.EVENTS_PER_ACCOUNT
    waves.load(store_url, wave + waves.WAVE_ACCOUNTS)
    with closing(connect(store_url)) as connection:
        rows = connection.execute(
            "SELECT position, stream, version, type FROM holdfast_event ORDER BY position"
        ).fetchall()
    assert [row[0] for row in rows] == list(range(1, wave + waves.WAVE_ACCOUNTS + 1))
    versions: dict[str, int] = {}
    for _, stream, version, type_ in rows:
        assert version == versions.get(stream, 0) + 1
        assert (type_ == "AccountOpened") == (version == 1)
        versions[stream] = version
    assert len(versions) == 2 * waves.WAVE_ACCOUNTS
    assert set(versions.values()) == {1, waves.EVENTS_PER_ACCOUNT}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE account_balance SET balance = balance + 1 WHERE version = 2",
        "UPDATE account_balance SET version = 1 WHERE version = 2",
        "DELETE FROM account_balance WHERE version = 2",
        "INSERT INTO account_balance VALUES ('stranger', 1, 1, '2026-01-01')",
    ],
)
def test_the_check_finds_one_wrong_row(store_url: str, damage: str) -> None:
    events = waves.WAVE_ACCOUNTS + 1  # so that one account has two
    waves.load(store_url, events)
    sets(store_url, events=events, size_events=4_000)
    waves.check(store_url, SAMPLE)
    with closing(connect(store_url)) as connection:
        connection.execute(damage)
        connection.commit()
    with pytest.raises(WrongResult):
        waves.check(store_url, SAMPLE)


def test_a_rate_is_that_of_whole_batches() -> None:
    commits = [Moment(0, 0.0), Moment(100, 1.0), Moment(250, 2.0), Moment(400, 5.0)]
    assert rate(commits, after=0, up_to=100) == 100.0
    assert rate(commits, after=0, up_to=200) == 125.0
    assert rate(commits, after=200, up_to=400) == 75.0
    assert rate(commits, after=250, up_to=400) == 50.0
