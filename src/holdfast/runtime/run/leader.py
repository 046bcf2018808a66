"""The life of a runner: it stands by, leads, waits, and ends.

    stand by ──lease──▶ lead ──stop──▶ release, end
       ▲                 │ │ ▲
       └──fenced, store──┘ │ └──wait, holding the lease alone──┐
          away (wait)      ├──an event is to be tried again────┘
                           └──an event stops it──▶ record the fault, end

What it does while it leads is in runner.py.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from holdfast.errors import (
    Fenced,
    LayoutChanged,
    ProjectionFaulted,
    ProjectionPaused,
    ShardRequested,
    StoreUnavailable,
)
from holdfast.model.definition import Definition
from holdfast.model.event import RawEvent
from holdfast.model.failure import ProcessDied
from holdfast.model.feed_names import JOURNAL
from holdfast.runtime.apply.leadership import Leadership
from holdfast.runtime.engines.engine import StoreFailedAt
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.failure.suspects import Suspects
from holdfast.runtime.run.batch_reader import most_events
from holdfast.runtime.run.elector import Elector
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.signals import (
    BegunAgain,
    LeaseLost,
    Singled,
    Started,
    Stopped,
)
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.faults import Fault, fault_of
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.session import Session


@dataclass(frozen=True, slots=True)
class _Retry:
    """An event that is tried again after a wait."""

    event: RawEvent
    until: float


class Leader(Worker):
    """Leads one projection on one feed whenever it can, until it is stopped, faulted or done."""

    def __init__(
        self,
        definition: Definition,
        context: RunnerContext,
        *,
        until: int | None = None,
        is_shard: bool = False,
    ) -> None:
        """`is_shard`: it ends without a fault when the projection gets other shards."""
        super().__init__(definition, context, until)
        self._is_shard, self.is_retired = is_shard, False
        self._elector = Elector(definition.name, context, self._stop, until=until)
        self._held: tuple[Session, Lease] | None = None
        self._suspects = Suspects(context.limits)
        self._invoker = Invoker()
        self._attempts = self._new_attempts(self._invoker)

    @property
    def name(self) -> str:
        feed = self._context.feed
        return self.definition.name if feed == JOURNAL else f"{self.definition.name} {feed}"

    def run(self) -> None:
        """Blocks until the runner ends; afterwards `fault` says if something is wrong."""
        with closing(self._invoker), ExitStack() as end:
            end.callback(self.leave)
            while self._goes_on and not self.is_retired:
                try:
                    self._stand_by_and_lead()
                except ShardRequested:
                    # The process that has asked for it comes first.
                    self._stop.wait(self._limits.handover_seconds)
                except Fenced as fenced:
                    self._emit(LeaseLost(*self._names, str(fenced)))
                    self._stop.wait(self._limits.standby_seconds)
                except StoreUnavailable as error:
                    self._back_off(error, suspect=self._suspects.suspect)
                except ProjectionFaulted as known:
                    self._stopped_at = self._elector.found
                    self._end_unrecorded(fault_of(known, self._context.clock))
                except LayoutChanged as error:
                    if not self._is_shard:
                        self._give_up(fault_of(error, self._context.clock))
                    self.is_retired = self._is_shard
                except Exception as error:
                    self._give_up(fault_of(error, self._context.clock))

    @abstractmethod
    def _begin(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Leadership:
        """Makes what is needed to lead."""

    @abstractmethod
    def _lead(self, leadership: Leadership) -> None:
        """Applies what there is, and what comes, until the runner is stopped or has arrived."""

    @abstractmethod
    def _roll_back(self) -> None:
        """Undoes what is not committed."""

    # Becoming leader

    def _stand_by_and_lead(self) -> None:
        """Takes the lease, if it is free, and works until something ends it."""
        session = self._context.open_session()
        try:
            found = self._elector.stand_by(session)
            if found is None:
                self._arrived = self._elector.has_arrived
                return
            checkpoint, lease = found
            try:
                checkpoint = self._take_over(session, checkpoint, lease)
                while (blocked := self._work(session, checkpoint, lease)) is not None:
                    # Nothing is held while nothing can be done, but the lease.
                    session.close()
                    waited = partial(self._attempts.recovery.waited, blocked.event)
                    if not self._elector.rest(blocked.until, lease, waited):
                        self._attempts.recovery.end_wait(blocked.event)
                    session = self._context.open_session()
                    checkpoint = self._elector.still_ours(session)
                    session.lead_on(checkpoint)
            except Fenced:
                if not self._elector.was_reset(session, lease):
                    raise
                self._emit(BegunAgain(*self._names))
            finally:
                lease.release()
        finally:
            session.close()

    def _take_over(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Checkpoint:
        if not self._elector.is_resumed(checkpoint):
            self._attempts = self._new_attempts(self._invoker)
        checkpoint = self._elector.take_over(session, checkpoint, lease)
        most = most_events(self.definition.kind, self._limits)
        self._suspects.begin(checkpoint, self._attempts.recovery, most_events=most)
        self._emit(Started(*self._names, checkpoint.position, checkpoint.epoch))
        if singly := self._suspects.alone_events:
            deaths = checkpoint.unclean_ends
            self._emit(Singled(*self._names, checkpoint.position, deaths, singly))
        return checkpoint

    def _work(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> _Retry | None:
        """Leads until something ends it; returns a wait if an event is to be tried again."""
        self._held = session, lease
        if self._tune(session):
            self._attempts.recovery.end_waits()
        leadership = self._begin(session, checkpoint, lease)
        try:
            session.prepare(self.definition)
            self.use()
            self._lead(leadership)
        except Blocked as blocked:
            return self._block(leadership, blocked)
        except StoreFailedAt as failed:
            self._note_progress(leadership)
            self._suspects.strike(failed, self._attempts.recovery)
            raise failed.error from failed
        except ProjectionPaused as paused:
            self._own_fault = fault_of(paused, self._context.clock)
            session.release(leadership.checkpoint)
        except (Fenced, LayoutChanged):
            raise
        except StoreUnavailable:
            self._note_progress(leadership)
            raise
        except ShardRequested:
            self._release(leadership)
            raise
        except Exception as error:
            self._stopped_at = leadership.checkpoint
            self._give_up_leading(fault_of(error, self._context.clock))
        else:
            self._release(leadership)
        finally:
            self._roll_back()
        return None

    def _release(self, leadership: Leadership) -> None:
        leadership.session.release(leadership.checkpoint)
        self._emit(Stopped(*self._names, leadership.checkpoint.position))

    # Waiting and failing

    def _block(self, leadership: Leadership, blocked: Blocked) -> _Retry | None:
        step, event, clock = blocked.step, blocked.event, self._context.clock
        self._failures = 0
        failure = self._attempts.recovery.fault_of(event, step)
        if isinstance(step, GiveUp):
            self._stopped_at = leadership.checkpoint
            self._give_up_leading(failure)
            return None
        at = clock.monotonic() + step.seconds
        what = "a retry of" if step.reason == "retry" else "the circuit breaker, then"
        until = clock.now() + timedelta(seconds=step.seconds)
        reason = f"{what} event {event.id} ({event.type!r}) at position {event.position}"
        has_died = failure.error_type == ProcessDied.__name__
        leadership.session.note_wait(
            leadership.checkpoint, until, reason, keep_mark=has_died, failure=failure
        )
        self._elector.checkpoint = leadership.checkpoint
        return _Retry(event, at)

    def _give_up_leading(self, fault: Fault) -> None:
        """Ends with a fault, or raises Fenced: what misses a table that a reset has dropped."""
        with suppress(StoreUnavailable), closing(self._context.open_session()) as session:
            self._elector.still_ours(session)
        self._give_up(fault)

    def _note_progress(self, leadership: Leadership) -> None:
        """Failures with a commit between them are not in a row."""
        if leadership.checkpoint != self._elector.checkpoint:
            self._failures = 0

    def _noted_checkpoint(self, session: Session) -> Checkpoint | None:
        if self._elector.checkpoint is not None:
            return self._elector.checkpoint
        # It has never led. What another process leads is not this one's to speak of.
        found = session.find_checkpoint(*self._names)
        return None if found is None or self._context.leases.is_taken(found) else found

    def abandon(self) -> None:
        """The process ends though a handler has not returned: no event is to blame.

        What the handler has begun is undone. May block.
        """
        held, checkpoint = self._held, self._elector.checkpoint
        if held is None or checkpoint is None:
            return
        session, lease = held
        session.abort()
        # A lease that was given back says as much, where the store can't be written.
        lease.release()
        with suppress(Exception), closing(self._context.open_session()) as session:
            session.release(checkpoint)
