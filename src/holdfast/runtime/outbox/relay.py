"""Outbox delivery in one process: many lanes at once, each in its own order.

    claimer: claim lanes ──▶ shares ──▶ executors: try their events
       ▲   (committed, counts the attempt)            │
       └── finish: rows, queue and lane in one transaction

One thread claims for all executors that are idle, renews claims, and tells that this process is
alive. Each executor is a thread with a connection of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from uuid import uuid4

from holdfast.errors import HoldfastError, ProjectionFaulted, ProjectionPaused, StoreUnavailable
from holdfast.model.definition import Definition
from holdfast.model.feed_names import MESSAGES
from holdfast.runtime.engines.engine import StoreFailedAt
from holdfast.runtime.engines.factory import engine_of
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp, PolicyState
from holdfast.runtime.outbox.bundle_size import BundleSize
from holdfast.runtime.outbox.executor import Executor
from holdfast.runtime.outbox.executor_threads import ExecutorThreads
from holdfast.runtime.outbox.shadow import Shadow
from holdfast.runtime.outbox.shares import Share, Shares
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.signals import Started, Stopped, Waited
from holdfast.runtime.store.claims import LEASE_SECONDS, Claim, Claims
from holdfast.runtime.store.faults import Fault, fault_of
from holdfast.runtime.store.session import Session

FIRST_CHECK_SECONDS = 0.01
"""First interval of the check whether another process has prepared the projection; it doubles."""

TEND_SECONDS = 1.0
"""Interval at which a relay tells that it is alive, and looks after its claims."""

LARGEST_CLAIM = 400
"""Maximum of lanes that are claimed at once for several executors."""


class Relay(Worker):
    """Delivers one outbox projection in this process, until it is stopped or faulted.

    With `until`, it ends as soon as nothing is due, and no lane is claimed, in any process.
    """

    def __init__(
        self,
        definition: Definition,
        context: RunnerContext,
        *,
        open_claims: Callable[[Session], Claims],
        until: int | None = None,
    ) -> None:
        super().__init__(definition, context, until)
        self._open_claims = open_claims
        self._numbers, self._id = count(1), uuid4().hex
        self._bundle_size = BundleSize(alone=definition.calls_out)
        self._shadow = Shadow(context.types, context.clock)
        self._policy_state = PolicyState()
        self._has_begun = False
        self._prepared_epoch: int | None = None
        """The epoch under which the tables were made; a reset may have dropped them since."""
        self._tend_at = self._renew_at = self._pause_until = 0.0
        self._shares = Shares(lambda: self._concurrency, lambda: self._goes_on)
        self._executors = ExecutorThreads(definition.name, self._run_executor)

    def run(self) -> None:
        """Blocks until the relay ends; afterwards `fault` says if something is wrong."""
        try:
            self._run()
        finally:
            self.leave()

    def _run(self) -> None:
        if not self._wait_until_prepared():
            return
        self._emit(Started(*self._names, 0, 0))
        while self._goes_on:
            self._try(self._claim_on_a_session)
        self._end_executors()
        if self.fault is None:
            self._emit(Stopped(*self._names, 0))

    @property
    def _concurrency(self) -> int:
        concurrency = self.definition.tuning.now.concurrency
        assert concurrency is not None
        return concurrency

    def runs_this_thread(self) -> bool:
        return self._executors.includes_this()

    def prepare(self) -> bool:
        """Makes the tables, and puts older events into the queue; one process at a time does."""
        self.use()
        with closing(self._context.open_session()) as session:
            checkpoint = session.open_checkpoint(*self._names)
            lease = self._context.leases.acquire(checkpoint)
            if lease is None:
                return False
            try:
                claims = self._open_claims(session)
                epoch = claims.state().epoch
                session.prepare(self.definition)
                self._prepared_epoch = epoch
                left, before = None, None
                while self._goes_on and (left := claims.backfill()):
                    self._recovered()
                    if left == before:  # An append that has not ended is in the way.
                        self._stop.wait(self._limits.standby_seconds)
                    before = left
            finally:
                lease.release()
            return left == 0

    def renew(self, tokens: Collection[str]) -> None:
        """Prolongs the claims under these tokens."""
        with closing(self._context.open_session()) as session:
            self._open_claims(session).renew(tokens)

    def executor(self, session: Session, invoker: Invoker) -> Executor:
        """What one thread needs to work on claims, on a session of its own."""
        types = self._context.types
        return Executor(
            self._new_attempts(invoker, self._policy_state),
            session=session,
            engine=engine_of(self.definition, types, session, invoker, self._limits),
            claims=self._open_claims(session),
            invoker=invoker,
            bundle_size=self._bundle_size,
            stopping=self._stop.is_set,
            stop_all=self.stop,
        )

    def stop(self) -> None:
        super().stop()
        self._shares.wake()

    # The claimer

    def _wait_until_prepared(self) -> bool:
        seconds = FIRST_CHECK_SECONDS
        while self._goes_on:
            if self._try(self._begin):
                return True
            # Another process prepares it, which takes a moment, or a long backfill.
            self._stop.wait(seconds)
            seconds = min(2 * seconds, self._limits.standby_seconds)
        return False

    def _begin(self) -> bool:
        if not self._has_begun:
            with closing(self._context.open_session()) as session:
                self._open_claims(session).begin()
            self._has_begun = True
        return self.prepare()

    def _claim_on_a_session(self) -> bool:
        """Claims until the relay ends, or the session fails."""
        with closing(self._context.open_session()) as session, closing(Invoker()) as invoker:
            executor = self.executor(session, invoker)
            self._tune(session)
            self._executors.keep(self._concurrency)
            while self._goes_on:
                self._give_back(executor, self._shares.orphans)
                self._tend(executor.claims, session)
                if not self._is_pausing(executor):
                    self._claim(executor)
            self._give_back(executor, self._shares.waiting)
        return True

    def _tend(self, claims: Claims, session: Session | None = None) -> None:
        """Renews claims, tells that this process is alive, and notices operators' changes."""
        now = self._context.clock.monotonic()
        if now < self._tend_at:
            return
        self._tend_at = now + TEND_SECONDS
        self._renew(claims)
        claims.heartbeat(self._id, self._bundle_size.stats)
        claims.clean()
        if session is not None and self._tune(session):
            self._executors.keep(self._concurrency)
            self._shares.wake()
        state = claims.state()
        if state.mode == "shadow" and state.paused_by is None:
            self._shadow.look(claims, self._bundle_size.stats, lambda: self._goes_on)
        if state.left or state.epoch != self._prepared_epoch:
            self.prepare()

    def _renew(self, claims: Claims) -> None:
        now, tokens = self._context.clock.monotonic(), self._shares.tokens
        if tokens and now >= self._renew_at:
            claims.renew(tokens)
            self._renew_at = now + LEASE_SECONDS / 3

    def _is_pausing(self, executor: Executor) -> bool:
        """Waits for a part of the breaker's pause; False if there is none."""
        clock = self._context.clock
        if self._pause_until <= clock.monotonic():
            return False
        self._give_back(executor, self._shares.waiting)
        began = clock.monotonic()
        is_over = clock.wait_until(
            self._pause_until,
            self._stop,
            part_seconds=TEND_SECONDS,
            blocks_caller=self._until is not None,
        )
        if not is_over:
            self._emit(Waited(*self._names, clock.monotonic() - began))
        return True

    def _claim(self, executor: Executor) -> None:
        """Claims for all idle executors, or waits until there is something to claim."""
        shares, finished = self._shares, self._shares.finished
        idle = shares.idle(TEND_SECONDS)
        # The executor that is idle now may have opened the breaker.
        if idle <= 0 or self._pause_until > self._context.clock.monotonic():
            return
        heard, claims, again = self._context.wake.count, executor.claims, shares.again
        token = f"{self._id}-{next(self._numbers)}"
        lanes, items = self._bundle_size.lanes_and_items
        wanted = min(lanes * idle, max(lanes, LARGEST_CLAIM))
        taken = claims.claim(token, lanes=wanted, again=again, items=items)
        if taken:
            self._share_out(executor, token, taken, idle)
            return
        left, is_busy = claims.next_due(again=again > 0)
        self._recovered()
        if self._until is not None and self._has_arrived(claims, left, is_busy=is_busy):
            self._arrived = True
            return
        seconds = self.definition.poll.empty_backoff_seconds
        if left is not None:
            seconds = min(seconds, max(left, 0.005))
        seconds = min(seconds, TEND_SECONDS if self._until is None else 0.01)
        # What an executor has left may be claimed.
        self._context.wake.wait(heard, seconds, also=lambda: shares.finished != finished)

    def _share_out(self, executor: Executor, token: str, taken: Sequence[Claim], idle: int) -> None:
        """A share for each idle executor, as far as it goes; a suspect goes alone."""
        suspect = next((c for c in taken if c.is_suspect and not c.was_lost), None)
        if suspect is None:
            lanes, _ = self._bundle_size.lanes_and_items
            new = [claim for claim in taken if not claim.has_failed]
            size = max(1, min(lanes, -(-len(new) // idle)))
            parts = [new[at : at + size] for at in range(0, len(new), size)]
            self._shares.add(token, parts + [[claim] for claim in taken if claim.has_failed])
            return
        # It may end the process, and other events that are tried meanwhile would be blamed too.
        self._shares.reserve(token)
        try:
            executor.give_back(token, [claim for claim in taken if claim is not suspect])
            self._await_idle(executor.claims)
        except BaseException:
            self._shares.leave(token, taken)
            raise
        self._shares.add(token, [[suspect]])
        self._await_idle(executor.claims)

    def _await_idle(self, claims: Claims) -> None:
        """Waits until no executor works, and looks after the claims meanwhile."""
        while self._goes_on and not self._shares.is_idle(TEND_SECONDS):
            self._tend(claims)

    def _has_arrived(self, claims: Claims, left: float | None, *, is_busy: bool) -> bool:
        """Whether nothing more happens by itself; raises while the projection is paused."""
        state = claims.state()
        if state.paused_by is not None:
            name = self.definition.name
            raise ProjectionPaused(
                f"it is paused by {state.paused_by}; holdfast resume {name} lets it go on"
            )
        return state.mode != "live" or (left != 0 and not is_busy)

    def _give_back(self, executor: Executor, shares: deque[Share]) -> None:
        """Gives back what nobody will work on here, or not soon."""
        while (share := self._shares.take_back(shares)) is not None:
            try:
                executor.give_back(share.token, share.claims)
            except BaseException:
                self._shares.orphans.append(share)
                raise
            if shares is not self._shares.orphans:
                self._close(share, was_taken=False)

    def _end_executors(self) -> None:
        """Waits for handlers that have begun, and keeps their claims meanwhile."""
        self.stop()
        while not self._executors.join(TEND_SECONDS):
            self._try(self._renew_on_a_session)
        self._try(self._end_on_a_session)

    def _renew_on_a_session(self) -> bool:
        if self._shares.tokens:
            with closing(self._context.open_session()) as session:
                self._renew(self._open_claims(session))
        return True

    def _end_on_a_session(self) -> bool:
        with closing(self._context.open_session()) as session, closing(Invoker()) as invoker:
            executor = self.executor(session, invoker)
            self._give_back(executor, self._shares.orphans)
            self._give_back(executor, self._shares.waiting)
            executor.claims.heartbeat(self._id, self._bundle_size.stats, ends=True)
        return True

    # Executors

    def _run_executor(self, number: int) -> None:
        try:
            with closing(Invoker()) as invoker:
                while self._goes_on and number < self._concurrency:
                    self._try(lambda: self._execute_on_a_session(number, invoker))
        except BaseException as error:
            self.crash(error)
            self.stop()
            raise

    def _execute_on_a_session(self, number: int, invoker: Invoker) -> bool:
        with closing(self._context.open_session()) as session:
            executor = self.executor(session, invoker)
            while (share := self._shares.take(number)) is not None:
                self._execute(executor, share)
        return True

    def _execute(self, executor: Executor, share: Share) -> None:
        try:
            pause_seconds = executor.work(share.token, share.claims)
            if pause_seconds is not None:
                self._pause_until = self._context.clock.monotonic() + pause_seconds
        except Exception as error:
            is_stores = isinstance(error, StoreUnavailable | StoreFailedAt)
            if is_stores or (not isinstance(error, Blocked) and self._was_reset()):
                self._shares.orphans.append(share)
            raise
        finally:
            self._close(share, was_taken=True)
        self._recovered()

    def _close(self, share: Share, *, was_taken: bool) -> None:
        self._shares.close(share, was_taken=was_taken)
        self._context.wake.nudge()

    # Failing

    def _try(self, work: Callable[[], bool]) -> bool:
        """Does something; False if it failed, and is tried again, or has ended the relay."""
        try:
            return work()
        except StoreFailedAt as failed:
            self._back_off(failed.error)
        except StoreUnavailable as error:
            self._back_off(error)
        except Blocked as blocked:
            if isinstance(blocked.step, GiveUp):
                self._give_up(fault_of(blocked.step.error, self._context.clock, blocked.event))
        except ProjectionPaused as paused:
            self._own_fault = fault_of(paused, self._context.clock)
            self.stop()
        except ProjectionFaulted as known:
            self.stop()
            self._end_unrecorded(fault_of(known, self._context.clock))
        except Exception as error:
            if not self._was_reset():
                self._give_up(fault_of(error, self._context.clock))
        return False

    def _was_reset(self) -> bool:
        """Whether the tables may be others since they were made; then they are made again."""
        if self._prepared_epoch is None:
            return False
        with suppress(HoldfastError), closing(self._context.open_session()) as session:
            if self._open_claims(session).state().epoch != self._prepared_epoch:
                self._tend_at = 0.0
                return True
        return False

    def _give_up(self, fault: Fault) -> None:
        if self._context.feed == MESSAGES:
            fault = replace(fault, needs_reset=False)  # There is nothing to build it from.
        self.stop()
        super()._give_up(fault)
