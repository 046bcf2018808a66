"""Outbox delivery in one process: many lanes at once, each in its own order.

    claim lanes ──▶ try their events ──▶ finish: rows, queue and lane in one transaction
         ▲  (committed, counts the attempt)            │
         └─────────────────────────────────────────────┘

Every hand is a thread with a connection of its own. One of them at a time claims, or waits for
something to claim; then it lets the next one in, and works.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import count
from uuid import uuid4

from holdfast.errors import HoldfastError, ProjectionFaulted, ProjectionPaused, StoreUnavailable
from holdfast.model.definition import Definition, Outbox
from holdfast.model.feed_names import MESSAGES
from holdfast.runtime.engines.engine import StoreFailedAt
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Attempts, Blocked
from holdfast.runtime.failure.recovery import GiveUp, PolicyState, Recovery
from holdfast.runtime.outbox.bundle_size import BundleSize
from holdfast.runtime.outbox.executor import Executor
from holdfast.runtime.outbox.shadow import Shadow
from holdfast.runtime.run.worker import STANDBY_SECONDS, RunnerContext, Worker
from holdfast.runtime.signals import PollFailed, PollRecovered, Started, Stopped
from holdfast.runtime.store.claims import LEASE_SECONDS, Claim, Claims
from holdfast.runtime.store.faults import Fault, fault_of
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source

FIRST_LOOK_SECONDS = 0.01
"""How soon a process looks again whether another one has prepared the projection."""

GLANCE_SECONDS = 0.02
"""How often somebody who waits looks whether another hand has finished."""

KEEP_SECONDS = 1.0
"""How often a relay looks after its claims."""

LARGEST_CLAIM = 400
"""Lanes that are claimed at once for several hands."""


@dataclass(frozen=True, slots=True)
class _Share:
    """A part of what was claimed under a token, for one hand."""

    token: str
    claims: Sequence[Claim]


class Relay(Worker):
    """Delivers one outbox projection in this process, until it is stopped or faulted.

    With `until`, it ends as soon as nothing is due, and nobody is at work, in any process.
    """

    def __init__(
        self,
        definition: Definition,
        wiring: RunnerContext,
        *,
        open_claims: Callable[[Session], Claims],
        until: int | None = None,
    ) -> None:
        super().__init__(definition, wiring, until)
        assert isinstance(definition.delivery, Outbox)
        self._outbox = definition.delivery
        self._open_claims = open_claims
        self._door = threading.Lock()
        self._numbers, self._name = count(1), uuid4().hex
        self._count = threading.Lock()
        self._idle = 0
        self._tokens: dict[str, int] = {}
        self._shares: deque[_Share] = deque()
        self._memory, self._pace = PolicyState(), BundleSize(alone=definition.calls_out)
        self._rest_until = 0.0
        self._finished = 0
        self._failures, self._back_at = 0, 0.0
        self._failing = threading.Lock()
        self._has_begun = False
        self._shadow = Shadow(wiring.types, wiring.clock)
        self._orphans: deque[tuple[str, Sequence[Claim]]] = deque()
        self._renew_at = 0.0

    def run(self) -> None:
        """Blocks until the relay ends; afterwards `fault` says if something is wrong."""
        self.threads = [
            threading.Thread(
                target=self._work, name=f"holdfast {self.definition.name} {n}", daemon=True
            )
            for n in range(self._outbox.concurrency)
        ]
        is_ready, seconds = False, FIRST_LOOK_SECONDS
        while self._goes_on and not is_ready:
            is_ready = self._try(self._begin)
            if not is_ready:
                # Another process prepares it, which takes a moment, or a long backfill.
                self._stop.wait(seconds)
                seconds = min(2 * seconds, STANDBY_SECONDS)
        if not is_ready:
            return
        self._emit(Started(*self._names, 0, 0))
        for hand in self.threads:
            hand.start()
        while self._goes_on:
            self._try(self._keep)
            self._stop.wait(KEEP_SECONDS)
        for hand in self.threads:
            while hand.is_alive():
                self._try(self._renew)  # A handler may take its time.
                hand.join(KEEP_SECONDS)
        self._try(self._keep)
        if self.fault is None:
            self._emit(Stopped(*self._names, 0))

    def abandon(self) -> None:
        """The process ends though handlers have not: their claims end by themselves."""

    # Looking after the whole

    def _begin(self) -> bool:
        if not self._has_begun:
            with closing(self._wiring.open_session()) as session:
                session.open_checkpoint(*self._names)
                self._open_claims(session).begin()
            self._has_begun = True
        return self.prepare()

    def prepare(self) -> bool:
        """Makes the tables, and puts older events into the queue; one process at a time does."""
        with closing(self._wiring.open_session()) as session:
            checkpoint = session.open_checkpoint(*self._names)
            lease = self._wiring.leases.acquire(checkpoint)
            if lease is None:
                return False
            try:
                session.prepare(self.definition)
                claims = self._open_claims(session)
                left, before = None, None
                while self._goes_on and (left := claims.backfill()):
                    self._recovered()
                    if left == before:  # An append that has not ended is in the way.
                        self._stop.wait(STANDBY_SECONDS)
                    before = left
            finally:
                lease.release()
            return left == 0

    def _keep(self) -> bool:
        """Those who are at work keep their lanes; and a reset is noticed."""
        self._renew()
        with closing(self._wiring.open_session()) as session:
            claims = self._open_claims(session)
            claims.seen(self._name, self._pace.tally)
            claims.clean()
            standing = claims.standing()
            if standing.mode == "shadow" and standing.paused_by is None:
                self._shadow.look(claims, self._pace.tally, lambda: self._goes_on)
        return standing.left == 0 or self.prepare()

    def _renew(self) -> bool:
        now, tokens = self._wiring.clock.monotonic(), list(self._tokens)
        if tokens and now >= self._renew_at:
            self.renew(tokens)
            self._renew_at = now + LEASE_SECONDS / 3
        return True

    def renew(self, tokens: Collection[str]) -> None:
        """Those who are at work keep their lanes."""
        with closing(self._wiring.open_session()) as session:
            self._open_claims(session).renew(tokens)

    def _try(self, work: Callable[[], bool]) -> bool:
        """Whether something was done; what the store can't do is tried again."""
        try:
            return work()
        except StoreFailedAt as failed:
            self._back_off(failed.error)
        except StoreUnavailable as error:
            self._back_off(error)
        except Blocked as halted:
            if isinstance(halted.verdict, GiveUp):
                self._give_up(fault_of(halted.verdict.error, self._wiring.clock, halted.event))
        except ProjectionPaused as paused:
            self.fault = fault_of(paused, self._wiring.clock)
            self._stop.set()
        except ProjectionFaulted as known:
            # The store knows it, and better: it is not written again.
            self._stop.set()
            self._end_with(fault_of(known, self._wiring.clock))
        except Exception as error:
            self._give_up(fault_of(error, self._wiring.clock))
        return False

    def hand(self, session: Session, caller: Invoker) -> tuple[Executor, Claims]:
        """What one thread needs to work, on a session of its own."""
        claims = self._open_claims(session)
        trier = self._trier(session, caller)
        stop = self._stop
        return Executor(trier, claims, self._pace, stopping=stop.is_set, halt=stop.set), claims

    # A hand's time

    def _work(self) -> None:
        try:
            with closing(Invoker()) as caller:
                while self._goes_on:
                    self._try(lambda: self._work_on_a_session(caller))
        except BaseException as error:
            self.crash(error)
            self._stop.set()
            raise

    def _work_on_a_session(self, caller: Invoker) -> bool:
        with closing(self._wiring.open_session()) as session:
            source = self._wiring.open_source(session)
            hand, claims = self.hand(session, caller)
            self._give_back_orphans(hand)
            while (share := self._next(hand, claims, source)) is not None:
                self._work_on(hand, share)
        return True

    def _work_on(self, hand: Executor, share: _Share) -> None:
        try:
            pause = hand.work(share.token, share.claims)
        except (StoreUnavailable, StoreFailedAt):
            self._orphans.append((share.token, share.claims))
            raise
        finally:
            self._finished += 1  # First: whoever sees that it is done sees this as well.
            self._done(share.token)
        if pause is not None:
            self._rest_until = self._wiring.clock.monotonic() + pause
        self._recovered()

    def _give_back_orphans(self, hand: Executor) -> None:
        """What a broken connection has left behind: the events have not failed."""
        while True:
            try:
                orphan = self._orphans.pop()
            except IndexError:
                return
            try:
                hand.give_back(*orphan)
            except BaseException:
                self._orphans.append(orphan)
                raise

    def _next(self, hand: Executor, claims: Claims, source: Source) -> _Share | None:
        """Lanes to work on; None when it is time to end."""
        with self._count:
            self._idle += 1
        try:
            with self._door:
                if self._shares and self._rests:
                    self._leave_shares(hand)
                while not self._shares and self._goes_on:
                    taken = self._claim(claims, source)
                    if taken is not None:
                        self._share_out(*taken, hand)
                if self._goes_on:
                    return self._shares.popleft() if self._shares else None
                self._leave_shares(hand)
                return None
        finally:
            with self._count:
                self._idle -= 1

    def _leave_shares(self, hand: Executor) -> None:
        """Nobody will work on them here, or not soon."""
        while self._shares:
            share = self._shares.popleft()
            try:
                hand.give_back(share.token, share.claims)
            except BaseException:
                self._orphans.append((share.token, share.claims))
                raise
            finally:
                self._done(share.token)

    @property
    def _rests(self) -> bool:
        return self._wiring.clock.monotonic() < self._rest_until

    def _share_out(self, token: str, taken: Sequence[Claim], hand: Executor) -> None:
        """A share for each who has nothing to do, as far as it goes."""
        suspect = next((claim for claim in taken if claim.is_suspect), None)
        if suspect is not None:
            # It may end the process, and whatever is in anybody's hand would be blamed as well.
            self._add_shares(token, [[suspect]])
            hand.give_back(token, [claim for claim in taken if claim is not suspect])
            self._work_on(hand, self._shares.popleft())
            return
        lanes, _ = self._pace.size
        size = max(1, min(lanes, -(-len(taken) // self._idle)))
        self._add_shares(token, [taken[at : at + size] for at in range(0, len(taken), size)])

    def _add_shares(self, token: str, shares: Sequence[Sequence[Claim]]) -> None:
        with self._count:
            self._tokens[token] = len(shares)
        self._shares.extend(_Share(token, share) for share in shares)

    def _claim(self, claims: Claims, source: Source) -> tuple[str, Sequence[Claim]] | None:
        """Claims for all who have nothing to do, or waits until there is something to claim."""
        while self._goes_on:
            finished = self._finished
            rest = self._rest_until - self._wiring.clock.monotonic()
            if rest > 0:
                self._stop.wait(rest)
                continue
            token = f"{self._name}-{next(self._numbers)}"
            lanes, items = self._pace.size
            wanted = min(lanes * self._idle, max(lanes, LARGEST_CLAIM))
            taken = claims.claim(token, lanes=wanted, items=items)
            if taken:
                return token, taken
            left, is_busy = claims.next_due()
            self._recovered()
            if self._until is not None and self._has_arrived(claims, left, is_busy=is_busy):
                self._arrived = True
                self._stop.set()
                return None
            seconds = self.definition.poll.empty_backoff_seconds
            if left is not None:
                seconds = min(seconds, max(left, 0.005))
            self._wait(source, seconds if self._until is None else min(seconds, 0.01), finished)
        return None

    def _wait(self, source: Source, seconds: float, finished: int) -> None:
        """Until there is news, or another hand has finished: what it left may be claimed."""
        clock = self._wiring.clock
        until = clock.monotonic() + seconds
        while self._goes_on:
            others_work, left = bool(self._tokens), until - clock.monotonic()
            if self._finished != finished or left <= 0:
                return
            if source.wait(min(left, GLANCE_SECONDS) if others_work else left):
                return

    def _has_arrived(self, claims: Claims, left: float | None, *, is_busy: bool) -> bool:
        """Whether nothing more is done by itself; raises where a person has to say so first."""
        standing = claims.standing()
        if standing.paused_by is not None:
            name = self.definition.name
            raise ProjectionPaused(
                f"it is paused by {standing.paused_by}; holdfast resume {name} lets it go on"
            )
        return standing.mode != "live" or (left != 0 and not is_busy)

    def _done(self, token: str) -> None:
        with self._count:
            self._tokens[token] -= 1
            if not self._tokens[token]:
                del self._tokens[token]

    def _trier(self, session: Session, caller: Invoker) -> Attempts:
        wiring = self._wiring
        judge = Recovery(
            self.definition,
            feed=wiring.feed,
            types=wiring.types,
            caller=caller,
            clock=wiring.clock,
            emit=self._emit,
            memory=self._memory,
        )
        return Attempts(
            self.definition,
            names=self._names,
            types=wiring.types,
            session=session,
            judge=judge,
            caller=caller,
            clock=wiring.clock,
            emit=self._emit,
            blamed={},
        )

    # Failing

    def _recovered(self) -> None:
        with self._failing:
            failures, self._failures = self._failures, 0
        if failures:
            self._emit(PollRecovered(*self._names, failures))

    def _back_off(self, error: StoreUnavailable) -> None:
        """Waits, as all hands do: what all of them meet at the same time is one failure."""
        poll, now = self.definition.poll, self._wiring.clock.monotonic()
        with self._failing:
            if now >= self._back_at and self.fault is None:
                self._failures += 1
                limit = poll.max_consecutive_failures
                if limit and self._failures >= limit:
                    self._give_up(fault_of(error, self._wiring.clock))
                    return
                delay = poll.failure_backoff.delay(self._failures)
                text = self.definition.masked(str(error))
                self._emit(PollFailed(*self._names, self._failures, text, delay))
                self._back_at = now + delay
        self._stop.wait(max(0.0, self._back_at - now))

    def _give_up(self, fault: Fault) -> None:
        """Ends the relay with a fault, written to the store if it can be reached."""
        if self._wiring.feed == MESSAGES:
            fault = replace(fault, needs_reset=False)  # There is nothing to build it from.
        with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
            session.record_fault(session.open_checkpoint(*self._names), fault)
        self._stop.set()
        self._end_with(fault)
