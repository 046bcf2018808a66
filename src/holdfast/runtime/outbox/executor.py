"""One thread of a relay: tries the events of claimed lanes, and finishes what it has tried.

Quick handlers are run for many lanes in one transaction. A slow one, and whoever says that it calls
other systems, has a transaction of its own, which begins when the handler needs it, so that nobody
waits for it. Which are slow is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile

from holdfast.model.event import RawEvent
from holdfast.model.failure import WorkerLost
from holdfast.runtime.engines.engine import (
    Applies,
    BatchLost,
    BatchRefused,
    EventFailed,
    Unrepeatable,
)
from holdfast.runtime.engines.handlers import HandlerEngine
from holdfast.runtime.failure.attempts import Attempts, Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.outbox.bundle_size import BUNDLE_SECONDS, BundleSize
from holdfast.runtime.signals import Committed, Died, Parked, Skipped
from holdfast.runtime.store.claims import Claim, ClaimLost, Claims
from holdfast.runtime.store.queue_items import FailedAttempt, ParkedEvent
from holdfast.runtime.store.transaction import Transaction


@dataclass(slots=True)
class _Outcome:
    """What has become of claimed lanes in one transaction."""

    applied: list[ParkedEvent] = field(default_factory=list)
    setbacks: list[tuple[Claim, ParkedEvent, FailedAttempt]] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)
    untried: list[Claim] = field(default_factory=list)
    halted: Blocked | None = None


class Executor:
    """Works on claims, one bundle after the other."""

    def __init__(
        self,
        trier: Attempts,
        claims: Claims,
        pace: BundleSize,
        *,
        stopping: Callable[[], bool],
        halt: Callable[[], None],
    ) -> None:
        """`halt` is called before a lane is given back whose head stops the projection."""
        self._trier, self._claims, self._pace = trier, claims, pace
        self._stopping, self._halt = stopping, halt

    def work(self, token: str, taken: Sequence[Claim]) -> float | None:
        """Tries what was claimed; returns a pause that the whole projection has to make, if any.

        Raises Blocked at an event that stops the projection. In both cases, what was not tried by
        then is given back. A lane that is no longer ours is left.
        """
        lost = [claim for claim in taken if claim.was_lost]
        again = [claim for claim in taken if not claim.was_lost and claim.head.record.attempts]
        fresh = [claim for claim in taken if not claim.was_lost and not claim.head.record.attempts]
        # What has failed, or was in a worker's hand that died, may be the cause: it goes alone.
        parts = [[claim] for claim in (*lost, *again)]
        if self._trier.definition.calls_out:
            parts += [[claim] for claim in fresh]
        elif fresh:
            parts.append(fresh)
        for n, part in enumerate(parts):
            try:
                pause = self._part(token, part)
            except Blocked:
                self.give_back(token, list(chain.from_iterable(parts[n + 1 :])))
                raise
            if pause is not None:
                self.give_back(token, list(chain.from_iterable(parts[n + 1 :])))
                return pause
        return None

    def _part(self, token: str, claims: Sequence[Claim]) -> float | None:
        if len(claims) > 1:
            return self._bundle(token, claims)
        (claim,) = claims
        return self._lost(token, claim) if claim.was_lost else self._alone(token, claim)

    def give_back(self, token: str, claims: Sequence[Claim]) -> None:
        """Lets go of lanes that were not tried, or in vain; no attempt is counted."""
        if not claims:
            return
        with self._trier.session.transaction() as work:
            ours = self._claims.hold(token, [claim.lane for claim in claims], wait=True)
            untried = [claim for claim in claims if claim.lane in ours]
            self._finish(work, token, _Outcome(untried=untried))

    def _bundle(self, token: str, claims: Sequence[Claim]) -> float | None:
        """Many lanes in one transaction; where they can't be, one after the other."""
        try:
            later, pause = self._together(token, claims)
        except ClaimLost:
            later, pause = list(claims), None
        except Exception as error:
            if self._cause(error) is None:
                raise
            later, pause = list(claims), None
        for n, claim in enumerate(later):
            if pause is not None:
                self.give_back(token, later[n:])
                return pause
            try:
                pause = self._alone(token, claim)
            except Blocked:
                self.give_back(token, later[n + 1 :])
                raise
        return pause

    def _alone(self, token: str, claim: Claim) -> float | None:
        """The events of one lane, in a transaction of their own, or only its head."""
        if self._stopping():
            self.give_back(token, [claim])
            return None
        try:
            if isinstance(self._trier.engine, HandlerEngine):
                return self._lone(token, claim)
            return self._together(token, [replace(claim, items=claim.items[:1])])[1]
        except ClaimLost:
            return None
        except Exception as error:
            cause = self._cause(error)
            if cause is None:
                raise
        return self._refused(token, claim, cause)

    def _cause(self, error: Exception) -> BaseException | None:
        """What an event has done to a whole batch, or None if it was no event's doing."""
        match error:
            case BatchLost():
                return error.error
            case BatchRefused() | Unrepeatable():
                return error.__cause__ or error
            case _:
                return error if self._trier.session.refused(error) else None

    # Transactions

    def _together(self, token: str, claims: Sequence[Claim]) -> tuple[list[Claim], float | None]:
        """Applies what waits in lanes; returns those that could not be had, and a pause."""
        trier, outcome = self._trier, _Outcome()
        trier.engine.forget()  # Others may have written since.
        started = self._trier.clock.monotonic()
        try:
            with trier.session.transaction() as work:
                lanes = [claim.lane for claim in claims]
                ours = self._claims.hold(token, lanes, wait=len(lanes) == 1)
                todo = [claim for claim in claims if claim.lane in ours]
                if not todo:
                    raise ClaimLost
                events = [item.event for claim in todo for item in claim.items]
                with (
                    trier.session.working(),
                    trier.engine.batch(None, work, from_queue=True, singly=False) as batch,
                ):
                    batch.expect(events)
                    for claim in todo:
                        late = (
                            outcome.gone
                            and self._trier.clock.monotonic() - started > 2 * BUNDLE_SECONDS
                        )
                        if outcome.halted or late or self._stopping():
                            outcome.untried.append(claim)
                        else:
                            self._lane(batch, claim, outcome)
                    with batch.finished() as finishing:
                        self._finish(finishing, token, outcome)
        except BaseException:
            trier.engine.forget()
            raise
        later = [claim for claim in claims if claim.lane not in ours]
        try:
            return later, self._tell(outcome, trier.clock.monotonic() - started)
        except Blocked:
            self.give_back(token, later)
            raise

    def _lone(self, token: str, claim: Claim) -> float | None:
        """The head of a lane, in a transaction that begins when its handler needs it."""
        engine, outcome = self._trier.engine, _Outcome()
        assert isinstance(engine, HandlerEngine)
        started = self._trier.clock.monotonic()
        with engine.one_event() as batch:
            self._lane(batch, replace(claim, items=claim.items[:1]), outcome)
            seconds = (
                self._trier.clock.monotonic() - started
            )  # What follows costs a bundle the same, once.
            with batch.finished() as work:
                self._check_ours(token, claim)
                self._finish(work, token, outcome)
        return self._tell(outcome, seconds)

    def _lost(self, token: str, claim: Claim) -> float | None:
        """The last one to try the head has not come back: its policy is asked first."""
        record = claim.head.record
        before = replace(record, attempts=max(0, record.attempts - 1))
        head = replace(claim.head, record=before)
        text = "the worker that tried it ended, or was silent for too long"
        return self._refused(token, replace(claim, items=[head]), WorkerLost(text))

    def _refused(self, token: str, claim: Claim, error: BaseException) -> float | None:
        """The head has failed already; nothing of it is left."""
        outcome = _Outcome()
        failed = EventFailed(claim.head.event, error)
        try:
            with self._trier.session.transaction() as work:
                self._check_ours(token, claim)
                self._set_back(None, claim, claim.head, failed.error, outcome)
                self._finish(work, token, outcome)
        except ClaimLost:
            return None
        return self._tell(outcome, 0.0)

    # Parts of them

    def _lane(self, batch: Applies, claim: Claim, outcome: _Outcome) -> None:
        """Tries the items of a lane in order, up to the first that fails."""
        now = self._trier.clock.now()
        behind = takewhile(lambda item: item.is_due(now), claim.items[1:])
        outcome.gone[claim.lane] = 0
        until = self._trier.clock.monotonic() + BUNDLE_SECONDS
        for item in (claim.head, *behind):
            if item is not claim.head and self._trier.clock.monotonic() > until:
                return
            try:
                self._trier.attempt(batch, item.event)
            except EventFailed as failed:
                self._set_back(batch, claim, item, failed.error, outcome)
                if outcome.setbacks and outcome.setbacks[-1][1] is item:
                    return
            else:
                outcome.applied.append(item)
                outcome.gone[claim.lane] += 1

    def _set_back(
        self,
        batch: Applies | None,
        claim: Claim,
        item: ParkedEvent,
        error: BaseException,
        outcome: _Outcome,
    ) -> None:
        setback, stop = self._trier.set_back(batch, claim.lane, item, error)
        outcome.gone.setdefault(claim.lane, 0)
        if setback is None:
            outcome.applied.append(item)
            outcome.gone[claim.lane] += 1
            return
        outcome.setbacks.append((claim, item, setback))
        outcome.gone[claim.lane] += setback.status == "skipped"
        if stop is not None and stop.halted is not None:
            outcome.halted = stop.halted
            if isinstance(stop.halted.verdict, GiveUp):
                self._halt()

    def _check_ours(self, token: str, claim: Claim) -> None:
        if not self._claims.hold(token, [claim.lane], wait=True):
            raise ClaimLost

    def _finish(self, work: Transaction, token: str, outcome: _Outcome) -> None:
        now = self._trier.clock.now()
        self._claims.finish([item.id for item in outcome.applied])
        for _, _, setback in outcome.setbacks:
            work.set_back(setback, now)
        self._claims.unclaim([claim.head.id for claim in outcome.untried])
        untried = dict.fromkeys([claim.lane for claim in outcome.untried], 0)
        self._claims.settle(token, outcome.gone | untried)

    def _tell(self, outcome: _Outcome, seconds: float) -> float | None:
        trier = self._trier
        events = [item.event for item in outcome.applied]
        trier.told(events)
        self._pace.took(len(events), len(outcome.setbacks), seconds)
        for claim, item, setback in outcome.setbacks:
            event: RawEvent = item.event
            where = (*trier.names, event.position, event.type, claim.lane)
            match setback.status:
                case "skipped":
                    trier.emit(Skipped(*where))
                case "dead":
                    trier.emit(Parked(*where))
                    trier.emit(Died(*where))
        if events:
            position = max(event.position for event in events)
            trier.emit(Committed(*trier.names, position, len(events), seconds))
        halted = outcome.halted
        if halted is None:
            return None
        if (seconds_to_rest := getattr(halted.verdict, "seconds", None)) is not None:
            return float(seconds_to_rest)
        raise halted
