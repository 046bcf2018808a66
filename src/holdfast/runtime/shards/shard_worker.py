"""Runs one projection in shards, together with other processes.

Each process has a runner for every shard, which stands by where another process leads. To spread
the shards evenly, a process begins with shards of its own choice and comes to the others a little
later; and a process with fewer shards asks one with more for a shard.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.feed_names import MAX_SHARDS, shard_feed, shard_feeds
from holdfast.runtime.run.runner import Runner
from holdfast.runtime.run.supervisor import Supervisor
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.shards.layout import ShardLayout, ShardLayouts
from holdfast.runtime.shards.shard_source import ShardSource
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.faults import fault_of
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source

CHECK_SECONDS = 2.0
"""Interval of the check who leads which shards, and whether their number has changed."""

CATCH_UP_CHECK_SECONDS = 0.05
"""The same where a caller waits for the end."""

SPREAD_SECONDS = 1.0
"""The time over which a process comes to the shards that it has not begun with."""

FINISH_SECONDS = 30.0
"""Timeout of the runner of an old shard for finishing its batch."""


class ShardWorker(Worker):
    """Runs one projection on all its shards, or on those that other processes leave.

    `part=(i, n)`: process i of n, which says with which shard it begins. With `until`, ends when
    each shard has come to that position; with `changes`, when a change of their number is done.
    """

    def __init__(
        self,
        definition: Definition,
        context: RunnerContext,
        layouts: ShardLayouts,
        *,
        part: tuple[int, int] | None = None,
        until: int | None = None,
        changes: bool = False,
    ) -> None:
        super().__init__(definition, context, until)
        self._layouts, self._changes = layouts, changes
        self._part = part or (zlib.crc32(layouts.me.encode()) % MAX_SHARDS, MAX_SHARDS)
        self._layout: ShardLayout | None = None
        self._runners: dict[str, Runner] = {}
        self._start_at: dict[str, float] = {}
        """When the shards begin that have not yet."""
        renewed = None if self._is_awaited else self._renewed
        self._supervisor = Supervisor(ended=self._runner_ended, renewed=renewed)

    def run(self) -> None:
        """Blocks until it ends; afterwards `fault` says if something is wrong."""
        check_at = 0.0
        try:
            while not (self._stop.is_set() or self._arrived or self._has_given_up):
                if time.monotonic() >= check_at:
                    self._check()
                    seconds = CATCH_UP_CHECK_SECONDS if self._changes else CHECK_SECONDS
                    check_at = time.monotonic() + seconds
                self._start_some()
                if self._has_ended():
                    break
                left = check_at - time.monotonic()
                is_quiet = not (self._start_at or self._is_awaited)
                self._stop.wait(left if is_quiet else CATCH_UP_CHECK_SECONDS)
        finally:
            self._end()

    def stop(self) -> None:
        super().stop()
        self._supervisor.stop()

    def abandon(self) -> None:
        self._supervisor.abandon()

    def runs_this_thread(self) -> bool:
        return self._supervisor.runs_this

    def _noted_checkpoint(self, session: Session) -> Checkpoint | None:
        return self._watched_checkpoint(session)

    def _watched_checkpoint(self, session: Session) -> Checkpoint | None:
        """That of the first shard, where the worker itself has failed."""
        shards = self.definition.shards if self._layout is None else self._layout.shards
        return session.find_checkpoint(self.definition.name, shard_feed(1, shards))

    # The layout

    def _check(self) -> None:
        """Looks what has changed."""
        name = self.definition.name
        try:
            layout = self._layouts.begin(name, self.definition.shards)
            if layout.next_shards is not None and self._layouts.change(name):
                layout = self._layouts.layout(name)
            if self._changes and layout.next_shards is None:
                self._arrived = True
            elif self._layout is None or layout.shards != self._layout.shards or self._has_retired:
                self._end()
                self._open(layout)
            elif not self._is_awaited:
                self._balance()
            self._layout = layout
            self._recovered()
        except StoreUnavailable as error:
            self._back_off(error)
        except HoldfastError as error:
            self._end_unrecorded(fault_of(error, self._context.clock))
            self._arrived = True

    @property
    def _has_retired(self) -> bool:
        """Whether a runner has ended because there were other shards, perhaps for a moment."""
        return any(runner.is_retired for runner in self._runners.values())

    def _balance(self) -> None:
        """Asks for a shard, if another process has at least two more than this one."""
        name, me = self.definition.name, self._layouts.me
        states = self._layouts.states(name)
        held = Counter(state.leader for state in states if state.leader is not None)
        if any(state.asked_by == me for state in states):
            return
        running = self._supervisor.running
        for leader, count in held.most_common():
            if leader == me or count - held[me] < 2:
                return
            for state in states:
                own = self._runners.get(state.feed)
                may_have = own in running and own.fault is None
                if state.leader == leader and state.asked_by is None and may_have:
                    self._layouts.ask(name, state)
                    return

    # Runners

    def _open(self, layout: ShardLayout) -> None:
        now, count = time.monotonic(), layout.shards
        first = self._part[0] * count // self._part[1]
        for rank in range(count):
            number = (first + rank) % count + 1
            feed = shard_feed(number, count)
            self._runners[feed] = self._new_runner(number, count)
            self._start_at[feed] = now + (
                0.0 if self._is_awaited else rank * SPREAD_SECONDS / count
            )

    def _new_runner(self, number: int, of: int) -> Runner:
        name = self.definition.name
        open_source = OpenShardSource(self._context, self._layouts, name, number, of)
        context = replace(self._context, feed=shard_feed(number, of), open_source=open_source)
        return Runner(self.definition, context, until=self._until, is_shard=True)

    def _renewed(self, runner: Worker) -> Worker:
        """Another runner for the shard of one that has faulted."""
        for feed, own in self._runners.items():
            if own is runner:
                count = len(self._runners)
                self._runners[feed] = self._new_runner(shard_feeds(count).index(feed) + 1, count)
                return self._runners[feed]
        raise AssertionError(runner.name)

    def _start_some(self) -> None:
        for feed, start_at in list(self._start_at.items()):
            if time.monotonic() >= start_at:
                del self._start_at[feed]
                self._supervisor.add(self._runners[feed])

    def _runner_ended(self, runner: Worker) -> None:
        """Keeps the first fault; the runners of other shards go on."""
        with self._failing:
            if self._stop.is_set() or self._is_awaited or runner.crashed:
                self._own_fault = self._own_fault or runner.fault
            self.crashed = self.crashed or runner.crashed

    def _parts(self) -> Sequence[Worker]:
        return list(self._runners.values())

    @property
    def _is_awaited(self) -> bool:
        """Whether a caller waits for the end."""
        return self._changes or self._until is not None

    def _has_ended(self) -> bool:
        """Whether all runners have, for good: they have arrived, or none of them can go on.

        While the layout changes, all wait for all: none arrives if one of them can't.
        """
        is_changing = self._layout is not None and self._layout.next_shards is not None
        if self._is_awaited and is_changing and self.fault is not None:
            return True
        has_all_ended = not (self._start_at or self._supervisor.running or self._has_retired)
        return bool(self._runners) and has_all_ended

    def _end(self) -> None:
        """Stops the runners when they have finished their batch."""
        self._supervisor.remove(list(self._runners.values()), FINISH_SECONDS)
        self._runners, self._start_at = {}, {}


@dataclass(frozen=True, slots=True)
class OpenShardSource:
    """Opens the source of one shard for a session."""

    context: RunnerContext
    layouts: ShardLayouts
    projection: str
    number: int
    of: int

    def __call__(self, session: Session) -> Source:
        source = self.context.open_source(session)
        return ShardSource(source, self.layouts, self.projection, number=self.number, of=self.of)
