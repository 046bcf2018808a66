"""What holds for every projection holds for one in shards.

The contracts run as they are, with three shards for every projection that can have them. Left out
is what they say of events of different streams, which different shards know nothing of: in which
order they come, and that a wait or a fault at one of them holds up the others.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast import App, ConfigError
from tests.contracts import (
    FailureContract,
    FaultContract,
    FoldingContract,
    HandlingContract,
    RunningContract,
)
from tests.integration.databases import OnPostgres, OnSqliteFile

LEFT_OUT: Any = None


class ShardedApp(App):
    """Every projection is in shards, unless it is one that can't be."""

    def projection(self, cls: Any = None, **settings: Any) -> Any:
        def register(projection: Any) -> Any:
            try:
                return App.projection(self, shards=3, **settings)(projection)
            except ConfigError as error:
                if "can't have shards" not in str(error):
                    raise
                return App.projection(self, **settings)(projection)

        return register if cls is None else register(cls)


class InShards:
    @pytest.fixture
    def open_app(self, url: str) -> Iterator[Callable[..., App]]:
        with ExitStack() as opened:
            yield lambda **settings: opened.enter_context(ShardedApp(url, **settings))


class Failures(FailureContract):
    # The order of streams.
    test_a_skipped_event_is_kept_with_its_error = LEFT_OUT
    test_callbacks_come_after_the_commit_alone = LEFT_OUT
    test_of_many_requeued_lanes_the_oldest_failure_comes_first = LEFT_OUT
    test_a_tx_ends_with_its_handler = LEFT_OUT
    test_a_wait_is_not_shortened_by_what_operators_do = LEFT_OUT
    # Others wait as well.
    test_a_healthy_event_waits_for_one_attempt_at_a_parked_one = LEFT_OUT
    test_a_breaker_pauses_and_skips_nothing = LEFT_OUT
    test_a_budget_ends_retries = LEFT_OUT
    test_other_event_types_don_t_close_a_breaker = LEFT_OUT
    test_a_wait_holds_nothing_and_ends_at_once = LEFT_OUT
    # Others stop as well; limits are a shard's.
    test_a_queue_that_can_not_be_written_stops_everything = LEFT_OUT
    test_retries_end = LEFT_OUT
    test_too_many_lanes_stop_the_projection = LEFT_OUT
    test_too_much_in_a_lane_stops_the_projection = LEFT_OUT


class Running(RunningContract):
    # One feed, by name.
    test_listeners_hear_what_happens = LEFT_OUT
    test_the_status_tells_how_far_it_is = LEFT_OUT
    test_whoever_was_taken_over_begins_no_side_effect = LEFT_OUT


class TestFailuresOnSqliteFile(InShards, OnSqliteFile, Failures):
    pass


class TestFailuresOnPostgres(InShards, OnPostgres, Failures):
    pass


class TestRunningOnSqliteFile(InShards, OnSqliteFile, Running):
    pass


class TestRunningOnPostgres(InShards, OnPostgres, Running):
    pass


class TestFaultsOnSqliteFile(InShards, OnSqliteFile, FaultContract):
    pass


class TestFoldingOnSqliteFile(InShards, OnSqliteFile, FoldingContract):
    pass


class TestHandlingOnSqliteFile(InShards, OnSqliteFile, HandlingContract):
    pass
