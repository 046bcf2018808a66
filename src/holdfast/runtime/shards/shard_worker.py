"""Runs one projection in shards, together with other processes.

Each process has a runner for every shard, which stands by where another one leads. So that all have
about the same, a process begins with shards of its own choice and comes to the others a little
later; and one that has fewer asks one that has more to leave it a shard.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, replace

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.feed_names import MAX_SHARDS, shard_feed
from holdfast.runtime.run.runner import Runner
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.shards.layout import ShardLayout, ShardLayouts
from holdfast.runtime.shards.shard_source import ShardSource
from holdfast.runtime.signals import PollFailed
from holdfast.runtime.store.faults import fault_of
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source

LOOK_SECONDS = 2.0
"""How often a process looks who has which shards, and whether there are others now."""

WAIT_LOOK_SECONDS = 0.05
"""The same, for somebody who waits for it."""

POLITE_SECONDS = 1.0
"""Over such a time, a process comes to the shards that it has not begun with."""

END_SECONDS = 30.0
"""How long a shard that is no more may finish what it has begun."""


@dataclass(frozen=True, slots=True)
class _Shard:
    runner: Runner
    thread: threading.Thread
    start_at: float


class ShardWorker(Worker):
    """Runs one projection on all its shards, or on those that others leave.

    `part`, n of so many processes, says which shard it begins with. With `until`, ends when every
    shard has come to that position; with `changes`, when a change of their number is done.
    """

    def __init__(
        self,
        definition: Definition,
        wiring: RunnerContext,
        layouts: ShardLayouts,
        *,
        part: tuple[int, int] | None = None,
        until: int | None = None,
        changes: bool = False,
    ) -> None:
        super().__init__(definition, wiring, until)
        self._layouts, self._changes = layouts, changes
        self._part = part or (zlib.crc32(layouts.me.encode()) % MAX_SHARDS, MAX_SHARDS)
        self._layout: ShardLayout | None = None
        self._shards: dict[str, _Shard] = {}
        self._ending: list[_Shard] = []
        self._failures = 0
        self._lock = threading.Lock()

    def run(self) -> None:
        """Blocks until it ends; afterwards `fault` says if something is wrong."""
        look_at = 0.0
        try:
            while not (self._stop.is_set() or self._arrived):
                if time.monotonic() >= look_at:
                    self._look()
                    seconds = WAIT_LOOK_SECONDS if self._changes else LOOK_SECONDS
                    look_at = time.monotonic() + seconds
                self._begin_some()
                if self._has_ended():
                    break
                is_begun = all(shard.thread.ident is not None for shard in self._shards.values())
                left = look_at - time.monotonic()
                self._stop.wait(left if is_begun and not self._waits else WAIT_LOOK_SECONDS)
        finally:
            self._end()

    def stop(self) -> None:
        super().stop()
        for shard in list(self._shards.values()):
            shard.runner.stop()

    def abandon(self) -> None:
        alive = [s for s in [*self._shards.values(), *self._ending] if s.thread.is_alive()]
        # At once: one that can't be written to the store does not keep the others from it.
        threads = [threading.Thread(target=s.runner.abandon, daemon=True) for s in alive]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    # Looking

    def _look(self) -> None:
        """Looks what has changed; a store that is away is asked again, and runners wait as well."""
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
            elif not self._waits:
                self._balance()
            self._layout, self._failures = layout, 0
        except StoreUnavailable as error:
            self._failures += 1
            delay = self.definition.poll.failure_backoff.delay(self._failures)
            text = self.definition.masked(str(error))
            self._emit(PollFailed(*self._names, self._failures, text, delay))
            self._stop.wait(delay)
        except HoldfastError as error:
            self._end_with(fault_of(error, self._wiring.clock))
            self._arrived = True

    @property
    def _has_retired(self) -> bool:
        """Whether a runner has ended because there were other shards, perhaps for a moment."""
        return any(shard.runner.is_retired for shard in self._shards.values())

    def _balance(self) -> None:
        """Asks for a shard, if somebody has at least two more than this process."""
        name, me = self.definition.name, self._layouts.me
        states = self._layouts.states(name)
        held = Counter(state.leader for state in states if state.leader is not None)
        if any(state.asked_by == me for state in states):
            return
        for leader, count in held.most_common():
            if leader == me or count - held[me] < 2:
                return
            for state in states:
                shard = self._shards.get(state.feed)
                may_have = shard is not None and shard.thread.is_alive()
                if state.leader == leader and state.asked_by is None and may_have:
                    self._layouts.ask(name, state)
                    return

    # Shards

    def _open(self, layout: ShardLayout) -> None:
        now, count = time.monotonic(), layout.shards
        first = self._part[0] * count // self._part[1]
        for rank in range(count):
            number = (first + rank) % count + 1
            wait = rank * POLITE_SECONDS / count if not self._waits else 0.0
            feed = shard_feed(number, count)
            runner = Runner(
                self.definition,
                replace(self._wiring, feed=feed, open_source=self._source_of(number, count)),
                until=self._until,
                is_shard=True,
            )
            thread = threading.Thread(
                target=self._run,
                args=(runner,),
                name=f"holdfast {self.definition.name} {feed}",
                daemon=True,
            )
            self._shards[feed] = _Shard(runner, thread, now + wait)

    def _source_of(self, number: int, of: int) -> SourceOf:
        return SourceOf(self._wiring, self._layouts, self.definition.name, number, of)

    def _begin_some(self) -> None:
        for shard in self._shards.values():
            if shard.thread.ident is None and time.monotonic() >= shard.start_at:
                self.threads.append(shard.thread)
                shard.thread.start()

    def _run(self, runner: Runner) -> None:
        try:
            runner.run()
        except BaseException as error:
            runner.crash(error)
            raise
        finally:
            with self._lock:
                self.fault = self.fault or runner.fault
                self.crashed = self.crashed or runner.crashed

    @property
    def _waits(self) -> bool:
        """Whether somebody waits for the end."""
        return self._changes or self._until is not None

    def _has_ended(self) -> bool:
        """Whether all runners have, for good: they have arrived, or none of them can go on.

        Where a change is under way, all wait for all: nobody arrives when one of them can't.
        """
        is_changing = self._layout is not None and self._layout.next_shards is not None
        if self._waits and is_changing and self.fault is not None:
            return True
        shards = self._shards.values()
        return bool(shards) and all(
            shard.thread.ident is not None
            and not shard.thread.is_alive()
            and not shard.runner.is_retired
            for shard in shards
        )

    def _end(self) -> None:
        """Lets shards finish what they have begun; one that does not is left to its fate."""
        self._ending, self._shards = list(self._shards.values()), {}
        for shard in self._ending:
            shard.runner.stop()
        until = time.monotonic() + END_SECONDS
        for shard in self._ending:
            if shard.thread.ident is not None:
                shard.thread.join(max(0.0, until - time.monotonic()))
                if shard.thread.is_alive():
                    shard.runner.abandon()
        self.threads[:] = [thread for thread in self.threads if thread.is_alive()]


@dataclass(frozen=True, slots=True)
class SourceOf:
    """Opens the source of one shard for a session."""

    wiring: RunnerContext
    layouts: ShardLayouts
    projection: str
    number: int
    of: int

    def __call__(self, session: Session) -> Source:
        source = self.wiring.open_source(session)
        return ShardSource(source, self.layouts, self.projection, number=self.number, of=self.of)
