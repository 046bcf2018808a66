"""Tries the events of claimed lanes, and finishes what it has tried.

Quick handlers run for many lanes in one transaction, a bundle. A slow handler, and one that calls
other systems, has a transaction of its own, which begins when the handler first uses it, so that
nobody waits for it. Which handlers are slow is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile

from holdfast.model.failure import WorkerLost
from holdfast.runtime.apply.outcome import Outcome, announce
from holdfast.runtime.engines.engine import Applies, Engine, EventFailed, refusal
from holdfast.runtime.engines.handlers import HandlerEngine
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure import exclusive
from holdfast.runtime.failure.attempts import Attempts, Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.outbox.bundle_size import BUNDLE_SECONDS, BundleSize
from holdfast.runtime.store.claims import Claim, ClaimLost, Claims
from holdfast.runtime.store.queue_items import NO_FAILURE, FailedAttempt, ParkedEvent
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import Transaction


@dataclass(slots=True)
class _Result:
    """What has become of claimed lanes in one transaction."""

    applied: list[ParkedEvent] = field(default_factory=list)
    failed: list[tuple[str, ParkedEvent, FailedAttempt]] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)
    """How many items are gone from each lane that was tried."""
    untried: list[Claim] = field(default_factory=list)
    blocked: Blocked | None = None


class Executor:
    """Works on claims with one session, on one thread."""

    def __init__(
        self,
        attempts: Attempts,
        *,
        session: Session,
        engine: Engine,
        claims: Claims,
        invoker: Invoker,
        bundle_size: BundleSize,
        stopping: Callable[[], bool],
        stop_all: Callable[[], None],
    ) -> None:
        """`stop_all` is called before a lane is given back whose head stops the projection."""
        self._attempts, self._clock = attempts, attempts.clock
        self._session, self._engine, self.claims = session, engine, claims
        self._invoker, self._bundle_size = invoker, bundle_size
        self._stopping, self._stop_all = stopping, stop_all

    def work(self, token: str, taken: Sequence[Claim]) -> float | None:
        """Tries what was claimed; returns a pause that the whole projection has to make, if any.

        Raises Blocked at an event that stops the projection. In both cases, lanes that were not
        tried are given back. A lane that is no longer ours is left.
        """
        lost = [claim for claim in taken if claim.was_lost]
        again = [c for c in taken if not c.was_lost and c.head.history != NO_FAILURE]
        fresh = [c for c in taken if not c.was_lost and c.head.history == NO_FAILURE]
        # An event that has failed, or that a lost worker had claimed, may be the cause: alone.
        parts = [[claim] for claim in (*lost, *again)]
        if self._attempts.definition.calls_out:
            parts += [[claim] for claim in fresh]
        elif fresh:
            parts.append(fresh)
        run = exclusive.exclusive_run
        is_suspect = any(claim.is_suspect for claim in again)
        # A suspect that ends the process is charged for it, so nobody else may do that meanwhile.
        with run.alone() if is_suspect else run.shared():
            return self._work_on_parts(token, parts)

    def give_back(self, token: str, claims: Sequence[Claim]) -> None:
        """Gives back lanes that were not tried, or in vain; no attempt is counted."""
        if not claims:
            return
        with self._session.transaction() as transaction:
            ours = self.claims.lock(token, [claim.lane for claim in claims], wait=True)
            untried = [claim for claim in claims if claim.lane in ours]
            self._finish(transaction, token, _Result(untried=untried))

    def _work_on_parts(self, token: str, parts: Sequence[Sequence[Claim]]) -> float | None:
        for n, part in enumerate(parts):
            try:
                pause = self._work_on_part(token, part)
            except Blocked:
                self.give_back(token, list(chain.from_iterable(parts[n + 1 :])))
                raise
            if pause is not None:
                self.give_back(token, list(chain.from_iterable(parts[n + 1 :])))
                return pause
        return None

    def _work_on_part(self, token: str, part: Sequence[Claim]) -> float | None:
        if len(part) > 1:
            return self._try_bundle(token, part)
        (claim,) = part
        return self._decide_lost(token, claim) if claim.was_lost else self._try_lane(token, claim)

    def _try_bundle(self, token: str, claims: Sequence[Claim]) -> float | None:
        """Many lanes in one transaction; where they can't be, one after the other."""
        try:
            later, pause = self._apply_bundle(token, claims)
        except ClaimLost:
            later, pause = list(claims), None
        except Exception as error:
            if refusal(self._session, error) is None:
                raise
            later, pause = list(claims), None
        if pause is not None:
            self.give_back(token, later)
            return pause
        return self._work_on_parts(token, [[claim] for claim in later])

    def _try_lane(self, token: str, claim: Claim) -> float | None:
        """The head of one lane, in a transaction of its own."""
        if self._stopping():
            self.give_back(token, [claim])
            return None
        claim = replace(claim, items=claim.items[:1])
        try:
            if isinstance(self._engine, HandlerEngine):
                return self._apply_head(token, claim, self._engine)
            return self._apply_bundle(token, [claim])[1]
        except ClaimLost:
            return None
        except Exception as error:
            cause = refusal(self._session, error)
            if cause is None:
                raise
        return self._fail_head(token, claim, cause)

    def _decide_lost(self, token: str, claim: Claim) -> float | None:
        """The last worker that tried the head is lost: the policy is asked before a new attempt.

        Unless other events were tried beside it, since one of them may be the cause.
        """
        history = claim.head.history
        before = replace(history, attempts=max(0, history.attempts - 1))
        head = replace(claim.head, history=before)
        text = "the worker that tried it ended, or was silent for too long"
        if not claim.is_suspect:
            text += "; this does not count as an attempt, because it tried others as well"
        return self._fail_head(token, replace(claim, items=[head]), WorkerLost(text))

    # Transactions

    def _apply_bundle(
        self, token: str, claims: Sequence[Claim]
    ) -> tuple[list[Claim], float | None]:
        """Applies what waits in lanes; returns those that an append had locked, and a pause."""
        engine, session, result = self._engine, self._session, _Result()
        engine.forget()  # Other workers may have written since.
        started = self._clock.monotonic()
        try:
            with session.transaction() as transaction:
                lanes = [claim.lane for claim in claims]
                ours = self.claims.lock(token, lanes, wait=len(lanes) == 1)
                todo = [claim for claim in claims if claim.lane in ours]
                if not todo:
                    raise ClaimLost
                with (
                    session.working(),
                    engine.batch(None, transaction, from_queue=True, singly=False) as batch,
                ):
                    batch.expect([item.event for claim in todo for item in claim.items])
                    for claim in todo:
                        seconds = self._clock.monotonic() - started
                        is_late = bool(result.gone) and seconds > 2 * BUNDLE_SECONDS
                        if result.blocked or is_late or self._stopping():
                            result.untried.append(claim)
                        else:
                            self._apply_lane(batch, claim, result)
                    with batch.finished() as finishing:
                        self._finish(finishing, token, result)
        except BaseException:
            engine.forget()
            raise
        later = [claim for claim in claims if claim.lane not in ours]
        try:
            return later, self._announce(result, self._clock.monotonic() - started)
        except Blocked:
            self.give_back(token, later)
            raise

    def _apply_head(self, token: str, claim: Claim, engine: HandlerEngine) -> float | None:
        """The head of a lane, in a transaction that begins when its handler first uses it."""
        result, started = _Result(), self._clock.monotonic()
        with engine.one_event() as batch:
            self._apply_lane(batch, claim, result)
            # What follows costs a bundle the same, once.
            seconds = self._clock.monotonic() - started
            with batch.finished() as transaction:
                self._check_ours(token, claim)
                self._finish(transaction, token, result)
        return self._announce(result, seconds)

    def _fail_head(self, token: str, claim: Claim, error: BaseException) -> float | None:
        """The head has failed already; nothing of it is left."""
        result = _Result()
        try:
            with self._session.transaction() as transaction:
                self._check_ours(token, claim)
                if claim.was_lost and not claim.is_suspect:
                    lost = self._attempts.lose_item(claim.lane, claim.head, error)
                    result.failed.append((claim.lane, claim.head, lost))
                    result.gone[claim.lane] = 0
                else:
                    self._fail(None, claim, claim.head, error, result)
                self._finish(transaction, token, result)
        except ClaimLost:
            return None
        return self._announce(result, 0.0)

    # Parts of transactions

    def _apply_lane(self, batch: Applies, claim: Claim, result: _Result) -> None:
        """Tries the items of a lane in order, up to the first that fails."""
        now = self._clock.now()
        behind = takewhile(lambda item: item.is_due(now), claim.items[1:])
        result.gone[claim.lane] = 0
        until = self._clock.monotonic() + BUNDLE_SECONDS
        for item in (claim.head, *behind):
            if item is not claim.head and self._clock.monotonic() > until:
                return
            try:
                self._attempts.attempt(batch, item.event)
            except EventFailed as failed:
                if self._fail(batch, claim, item, failed.error, result):
                    return
            else:
                result.applied.append(item)
                result.gone[claim.lane] += 1

    def _fail(
        self,
        batch: Applies | None,
        claim: Claim,
        item: ParkedEvent,
        error: BaseException,
        result: _Result,
    ) -> bool:
        """Notes what becomes of a failed item; False if the fallback has handled it."""
        attempt, stop = self._attempts.fail_item(batch, claim.lane, item, error)
        result.gone.setdefault(claim.lane, 0)
        if attempt is None:
            result.applied.append(item)
            result.gone[claim.lane] += 1
            return False
        result.failed.append((claim.lane, item, attempt))
        result.gone[claim.lane] += attempt.status == "skipped"
        if stop is not None and stop.blocked is not None:
            result.blocked = stop.blocked
            if isinstance(stop.blocked.step, GiveUp):
                self._stop_all()
        return True

    def _check_ours(self, token: str, claim: Claim) -> None:
        if not self.claims.lock(token, [claim.lane], wait=True):
            raise ClaimLost

    def _finish(self, transaction: Transaction, token: str, result: _Result) -> None:
        now = self._clock.now()
        self.claims.finish([item.id for item in result.applied])
        for _, _, attempt in result.failed:
            transaction.fail_item(attempt, now)
        # The attempt at a head whose worker is lost was made, and stays counted.
        self.claims.expire(token, [claim.lane for claim in result.untried if claim.was_lost])
        given_back = [claim for claim in result.untried if not claim.was_lost]
        self.claims.unclaim([claim.head.id for claim in given_back])
        untried = dict.fromkeys([claim.lane for claim in given_back], 0)
        self.claims.release(token, result.gone | untried)
        self.claims.count([item.event for item in result.applied], len(result.failed))

    def _announce(self, result: _Result, seconds: float) -> float | None:
        """Tells what came of a transaction; returns the pause that the breaker asks for."""
        events = [item.event for item in result.applied]
        self._bundle_size.took(len(events), len(result.failed), seconds)
        outcome = Outcome(
            position=max((event.position for event in events), default=None),
            applied=len(events),
            seconds=seconds,
            failed=[(lane, item.event, attempt) for lane, item, attempt in result.failed],
            parks_dead=True,
            callbacks=self._engine.committed(),
        )
        for event in events:
            if (history := self._attempts.recovery.forget(event)) is not None:
                outcome.recovered.append((event, history.attempts + 1))
        announce(outcome, self._attempts, self._invoker)
        if result.blocked is None:
            return None
        if isinstance(result.blocked.step, GiveUp):
            raise result.blocked
        return result.blocked.step.seconds
