"""Cases run on little data, and their checks notice what is missing."""

from contextlib import closing

import pytest

from bench import catch_up, journal, steady
from bench.case import Sample, WrongResult
from bench.cases import hand_written, latency, many, parked, retrying
from bench.connection import connect
from bench.measure import Measure
from holdfast.runtime.limits import LIMITS
from tests.support.limits import use_limits

EVENTS = 1_100


def test_the_loop_in_pipeline_mode_builds_the_same_rows(postgres_url: str) -> None:
    journal.load(postgres_url, EVENTS)
    sample = hand_written.pipeline(postgres_url, events=EVENTS)
    catch_up.check(postgres_url, sample)


def test_sets_of_any_size_build_the_same_rows(store_url: str) -> None:
    journal.load(store_url, EVENTS)
    sample = hand_written.sets(store_url, events=EVENTS, size_events=300)
    catch_up.check(store_url, sample)


def test_one_set_is_as_large_as_a_flush() -> None:
    size = hand_written.set_sizes()["set-based-50k"]
    assert size == LIMITS.range_events == catch_up.FLUSH_EVENTS


@pytest.mark.parametrize("name", ["holdfast", "polling"])
def test_delays_are_those_of_all_events(postgres_url: str, name: str) -> None:
    journal.load(postgres_url, 0)
    projecting = {"holdfast": latency.holdfast, "polling": latency.polling}[name]
    sample = latency.run(postgres_url, projecting=projecting, events=20)
    steady.check(postgres_url, sample)
    assert 0 < sample.value(Measure.MEDIAN_DELAY) <= sample.value(Measure.LONG_DELAY)
    with closing(connect(postgres_url)) as connection:
        connection.execute("UPDATE account_balance SET balance = 0 WHERE account_id = 'account-1'")
        connection.commit()
    with pytest.raises(WrongResult):
        steady.check(postgres_url, sample)


def test_appends_are_no_reads_of_the_journal(postgres_url: str) -> None:
    journal.load(postgres_url, 0)
    before = many.journal_reads(postgres_url)
    steady.append_steadily(postgres_url, events=20)
    # The appender asks once where the journal ends, and once whether its sequence is behind.
    assert many.journal_reads(postgres_url) - before <= 2


def test_each_projection_has_all_events(postgres_url: str) -> None:
    journal.load(postgres_url, 0)
    tables = many.tables(2)
    sample = many.run(postgres_url, tables=tables, events=20)
    many.check(postgres_url, sample, tables=tables)
    assert sample.value(Measure.JOURNAL_READS) > 1


@pytest.mark.parametrize("lanes", [0, 10])
def test_parked_lanes_stay_parked(store_url: str, lanes: int) -> None:
    parked.load(store_url, 0, lanes=lanes)
    sample = parked.run_live(store_url)
    parked.check_live(store_url, sample, lanes=lanes)
    with pytest.raises(WrongResult):
        parked.check_live(store_url, sample, lanes=lanes + 1)


def test_events_come_while_lanes_retry(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "ATTEMPT_SECONDS", 0.001)
    retrying.load(store_url, 3)
    sample = latency.run(store_url, projecting=retrying.worker, events=5)
    steady.check(store_url, sample)


def test_batches_come_behind_parked_lanes(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "FLUSH_EVENTS", 1_000)
    monkeypatch.setattr(parked, "FLUSH_EVENTS", 1_000)
    use_limits(monkeypatch, chunk_events=200)
    events = 200 * 5 + EVENTS
    parked.load(store_url, events, lanes=10)
    sample = parked.run_batches(store_url)
    parked.check_batches(store_url, sample, lanes=10)
    assert 0 < sample.events < events


def test_a_sample_knows_its_own_measures() -> None:
    sample = Sample(events=100, seconds=2.0, cpu_seconds=0.5, figures={Measure.PEAK_MEMORY: 7.0})
    assert sample.value(Measure.RATE) == 50.0
    assert sample.value(Measure.CPU) == 0.5
    assert sample.value(Measure.PEAK_MEMORY) == 7.0
