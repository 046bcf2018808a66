"""One projection on one feed: read, apply, commit, and again.

The life of a runner:

    stand by ──lease──▶ lead ──stop──▶ release, end
       ▲                 │ │ ▲
       └──fenced, store──┘ │ └──wait, holding the lease alone──┐
          away (wait)      ├──an event is to be tried again────┘
                           └──an event stops it──▶ record the fault, end

Everything an event causes is in one transaction with the checkpoint, which moves only under the
runner's epoch. So a runner may be killed, frozen or cut off at any point, and the next one goes
on from exactly what is committed.
"""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import timedelta

from holdfast.errors import (
    Fenced,
    HoldfastError,
    LayoutChanged,
    ProjectionPaused,
    ShardRequested,
    StoreUnavailable,
)
from holdfast.model.definition import Definition, Fold
from holdfast.model.event import RawEvent
from holdfast.model.failure import ProcessDied
from holdfast.runtime.apply.leadership import Leadership, read_lanes
from holdfast.runtime.engines.engine import StoreFailedAt
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp, Recovery, RetryAfter
from holdfast.runtime.failure.suspects import Suspects
from holdfast.runtime.run.follow import Follower
from holdfast.runtime.run.worker import STANDBY_SECONDS, RunnerContext, Worker
from holdfast.runtime.signals import LeaseLost, PollFailed, PollRecovered, Singled, Started, Stopped
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.faults import MAX_MESSAGE_CHARACTERS, Fault, clean, fault_of
from holdfast.runtime.store.leases import Lease
from holdfast.runtime.store.session import Session

LET_GO_SECONDS = 2.0
"""So long a runner leaves a lease to another process that has asked for it."""

LOOK_SECONDS = 2.0
"""How often a runner that waits for a retry looks for what people have changed."""


class Runner(Worker):
    """Runs one projection until it is stopped, or faulted, or (with `until`) has arrived."""

    def __init__(
        self,
        definition: Definition,
        wiring: RunnerContext,
        *,
        until: int | None = None,
        is_shard: bool = False,
    ) -> None:
        """`is_shard`: when there are other shards, it ends, and that is no fault."""
        super().__init__(definition, wiring, until)
        self._is_shard, self.is_retired = is_shard, False
        self._checkpoint: Checkpoint | None = None
        self._held: tuple[Session, Lease] | None = None
        self._failures = 0
        self._failing_since = wiring.clock.now()
        self._waits_for: RawEvent | None = None
        self._suspicion = Suspects()
        self._caller = Invoker()
        self._judge = self._new_judge()

    def run(self) -> None:
        """Blocks until the runner ends; afterwards `fault` says if something is wrong."""
        with closing(self._caller):
            while self._goes_on and not self.is_retired:
                try:
                    self._lead()
                except ShardRequested:
                    # Whoever has asked for it comes first.
                    self._stop.wait(LET_GO_SECONDS)
                except Fenced as fenced:
                    self._emit(LeaseLost(*self._names, str(fenced)))
                    self._stop.wait(STANDBY_SECONDS)
                except StoreUnavailable as error:
                    self._back_off(error)
                except Exception as error:
                    if self._is_shard and isinstance(error, LayoutChanged):
                        self.is_retired = True
                    else:
                        self._give_up(fault_of(error, self._wiring.clock))

    def abandon(self) -> None:
        """Its handler does not return, and the process ends: that is nobody's death.

        What the handler has begun is undone. May block.
        """
        held = self._held
        if held is None or self._checkpoint is None:
            return
        session, lease = held
        session.abort()
        # A lease that was given back says as much, where the store can't be written.
        lease.release()
        with suppress(Exception), closing(self._wiring.open_session()) as session:
            session.release(self._checkpoint)

    # Leading

    def _lead(self) -> None:
        """Takes the lease, if it is free, and works until something ends it."""
        session = self._wiring.open_session()
        try:
            found = self._stand_by(session)
            if found is None:
                return
            checkpoint, lease = found
            try:
                checkpoint = self._take_over(session, checkpoint, lease)
                self._emit(Started(*self._names, checkpoint.position, checkpoint.epoch))
                if singly := self._suspicion.alone_for:
                    deaths = checkpoint.unclean_ends
                    self._emit(Singled(*self._names, checkpoint.position, deaths, singly))
                while (wait := self._work(session, checkpoint, lease)) is not None:
                    # Nothing is held while nothing can be done, but the lease.
                    session.close()
                    self._rest(wait, lease)
                    session = self._wiring.open_session()
                    checkpoint = self._still_ours(session)
                    session.lead_on(checkpoint)
            finally:
                lease.release()
        finally:
            session.close()

    def _stand_by(self, session: Session) -> tuple[Checkpoint, Lease] | None:
        """Waits for the lease; None when asked to stop, or when the other runner has arrived."""
        while True:
            checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
            lease = self._wiring.leases.acquire(checkpoint)
            if lease is not None:
                return checkpoint, lease
            self._failures = 0
            self._arrived = self._until is not None and checkpoint.position >= self._until
            if self._arrived or not self._wait_for_turn(session, checkpoint):
                return None

    def _wait_for_turn(self, session: Session, checkpoint: Checkpoint) -> bool:
        """Waits while another one leads, or for a moment; returns False when asked to stop."""
        if self._until is not None:
            return not self._stop.wait(STANDBY_SECONDS)  # Then looks how far the other one is.
        session.rest()
        while not self._stop.wait(STANDBY_SECONDS):
            if not self._wiring.leases.is_taken(checkpoint):
                return True
        return False

    def _take_over(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> Checkpoint:
        resumed = self._checkpoint is not None and self._checkpoint.epoch == checkpoint.epoch
        if not resumed:
            self._judge = self._new_judge()
        head = self._wiring.open_source(session).head()
        idle = head <= checkpoint.position and not session.closed_lanes(checkpoint)
        ended_well = idle or lease.was_given_back
        self._checkpoint = session.take_over(checkpoint, resumed=resumed, ended_well=ended_well)
        self._suspicion.begin(self._checkpoint, folds=isinstance(self.definition.kind, Fold))
        return self._checkpoint

    def _rest(self, wait: RetryAfter, lease: Lease) -> None:
        """Waits; ends early when asked to stop, or when a person has changed something."""
        left = wait.seconds
        while not self._stop.wait(min(left, LOOK_SECONDS)):
            if self._waits_for is not None:
                self._judge.waited(self._waits_for, min(left, LOOK_SECONDS))
            left -= LOOK_SECONDS
            if not lease.held:
                raise Fenced(f"projection {self.definition.name!r} lost its lease")
            if left <= 0:
                return
            with closing(self._wiring.open_session()) as session:
                now = self._still_ours(session)
            if self._checkpoint is not None and now.revision != self._checkpoint.revision:
                return

    def _still_ours(self, session: Session) -> Checkpoint:
        checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
        if self._checkpoint is None or checkpoint.epoch != self._checkpoint.epoch:
            raise Fenced(f"projection {self.definition.name!r} was taken over while it waited")
        return checkpoint

    def _work(self, session: Session, checkpoint: Checkpoint, lease: Lease) -> RetryAfter | None:
        """Works until something ends it; returns a wait if the same event is to be tried again."""
        self._held = session, lease
        stint = Leadership(
            self.definition,
            types=self._wiring.types,
            session=session,
            checkpoint=checkpoint,
            lanes=read_lanes(session, checkpoint),
            judge=self._judge,
            caller=self._caller,
            clock=self._wiring.clock,
            emit=self._emit,
            stopping=self._stop.is_set,
            blamed=self._suspicion.blamed,
        )
        try:
            session.prepare(self.definition)
            follower = Follower(
                stint,
                self._wiring.open_source(session),
                lease,
                suspicion=self._suspicion,
                still_ours=self._still_ours,
                progressed=self._recovered,
                stop=self._stop,
            )
            self._arrived = follower.follow(self._until)
        except Blocked as halted:
            return self._halt(session, stint, halted)
        except StoreFailedAt as failed:
            self._note_progress(stint)
            self._suspicion.strike(failed)
            raise failed.error from failed
        except ProjectionPaused as paused:
            self.fault = fault_of(paused, self._wiring.clock)
            session.release(stint.checkpoint)
        except ShardRequested:
            session.release(stint.checkpoint)
            self._emit(Stopped(*self._names, stint.checkpoint.position))
            raise
        except (Fenced, LayoutChanged):
            raise
        except StoreUnavailable:
            self._note_progress(stint)
            raise
        except Exception as error:
            self._give_up(fault_of(error, self._wiring.clock))
        else:
            session.release(stint.checkpoint)
            self._emit(Stopped(*self._names, stint.checkpoint.position))
        return None

    def _halt(self, session: Session, stint: Leadership, halted: Blocked) -> RetryAfter | None:
        verdict, event = halted.verdict, halted.event
        self._failures = 0
        if isinstance(verdict, GiveUp):
            self._give_up(fault_of(verdict.error, self._wiring.clock, event))
            return None
        what = "a retry of" if verdict.reason == "retry" else "the circuit breaker, then"
        until = self._wiring.clock.now() + timedelta(seconds=verdict.seconds)
        reason = f"{what} event {event.id} ({event.type!r}) at position {event.position}"
        died = self._judge.last_error(event) == ProcessDied.__name__
        session.note_wait(stint.checkpoint, until, reason, keep_mark=died)
        self._checkpoint, self._waits_for = stint.checkpoint, event
        return verdict

    # Failing

    def _note_progress(self, stint: Leadership) -> None:
        """Failures with a commit between them are not in a row."""
        if self._checkpoint is not None and stint.checkpoint != self._checkpoint:
            self._failures = 0

    def _recovered(self) -> None:
        if self._failures:
            self._emit(PollRecovered(*self._names, self._failures))
            self._failures = 0

    def _back_off(self, error: StoreUnavailable) -> None:
        self._failures += 1
        poll = self.definition.poll
        if poll.max_consecutive_failures and self._failures >= poll.max_consecutive_failures:
            self._give_up(fault_of(error, self._wiring.clock, self._suspicion.suspect))
            return
        delay = poll.failure_backoff.delay(self._failures)
        text = self.definition.masked(str(error))
        self._emit(PollFailed(*self._names, self._failures, text, delay))
        if self._failures == 1:
            self._failing_since = self._wiring.clock.now()
        if not error.connection_lost:
            self._note_failing(error, delay)
        self._stop.wait(delay)

    def _note_failing(self, error: StoreUnavailable, delay_seconds: float) -> None:
        """Tells those who ask, if the store takes as much as that."""
        if self._checkpoint is None:
            return
        until = self._wiring.clock.now() + timedelta(seconds=delay_seconds)
        reason = (
            f"what it needs, which has failed {self._failures} times in a row since "
            f"{self._failing_since:%Y-%m-%d %H:%M:%S %Z}: {error}"
        )
        with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
            reason = clean(reason, MAX_MESSAGE_CHARACTERS)
            session.note_wait(self._checkpoint, until, reason, keep_mark=True)

    def _give_up(self, fault: Fault) -> None:
        """Ends the runner with a fault, written to the store if it can be reached."""
        if self._checkpoint is not None:
            # Not the runner's own session: its connection may be what has failed.
            with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
                session.record_fault(self._checkpoint, fault)
        self._end_with(fault)

    def _new_judge(self) -> Recovery:
        return Recovery(
            self.definition,
            feed=self._wiring.feed,
            types=self._wiring.types,
            caller=self._caller,
            clock=self._wiring.clock,
            emit=self._emit,
        )
