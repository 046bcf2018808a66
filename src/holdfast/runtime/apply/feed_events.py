"""Applies events of the feed: rows, queue and checkpoint in one transaction, or nothing.

When an event fails, nothing of it is left, and the policy is asked about that one event; the
rest of the batch goes on. What precedes a failure is always in; what follows it in its lane waits
behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import assert_never

from holdfast.errors import HoldfastError
from holdfast.model.definition import Fold
from holdfast.model.event import RawEvent, kept
from holdfast.model.foreign_feed import VersionGap
from holdfast.model.policy import Fatal, Park, Skip
from holdfast.runtime.apply.fast_path import FastPath
from holdfast.runtime.apply.leadership import FOLD_SECONDS, SLICE_SECONDS, Leadership
from holdfast.runtime.engines.engine import (
    Batch,
    BatchLost,
    BatchRefused,
    EventFailed,
    Unrepeatable,
)
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.signals import Died, Duplicates, Parked, Queued, Refused, Skipped
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.queue_items import (
    LOOK_LATER_SECONDS,
    OUTSTANDING,
    FailureHistory,
    NewItem,
)


class Applier:
    """Applies what is read from the feed, and moves the checkpoint on with every commit."""

    def __init__(self, stint: Leadership, assure: Callable[[], None]) -> None:
        """`assure` is called before what was read is committed, and may refuse that."""
        self._stint, self._assure = stint, assure
        self._rulings: dict[int, Skip | Park] = {}
        self._known = 0
        """Events of the batch that have been here before."""
        self._is_wary = False
        """Whether one of the events that come is known to be to blame for something."""
        self._woken: set[str] = set()
        """Lanes whose heads had come too early, and may have their turn now."""

    def apply(self, events: Sequence[RawEvent], *, singly: bool = False) -> int:
        """Applies and commits events in order; returns how many (fewer only when stopping).

        Raises Blocked at an event that must be tried again later, or stops the projection.
        """
        done, size = 0, len(events)
        self._is_wary = self._is_wary or singly
        while done < len(events) and not (done and self._stint.stopping()):
            part = events[done : done + size]
            applied = self._apply(part)
            self._is_wary = singly
            done += applied
            # Where one event is refused there may be more: they are looked for among fewer.
            size = 2 * (len(part) if applied == len(part) else max(applied, 1))
        return done

    def apply_while_read(self, chunks: Iterable[Sequence[RawEvent]]) -> int | None:
        """Applies and commits events as they are read, while there is time; returns how many.

        None if one of them is to blame for what can't be stored: then nothing is in, and fewer of
        them show which. Raises Blocked as `apply` does.
        """
        try:
            return self._commit(chunks, singly=False)
        except Exception as error:
            self._is_wary = isinstance(error, Unrepeatable | BatchRefused)
            if not (self._is_wary or self._stint.session.refused(error)):
                raise
            self._tell_refused(error.__cause__ or error if self._is_wary else error)
            return None

    def _tell_refused(self, error: BaseException) -> None:
        stint = self._stint
        text = stint.definition.masked(f"{type(error).__name__}: {text_of(error)}")
        stint.emit(Refused(*stint.names, stint.checkpoint.position, text))

    def pass_to(self, position: int) -> None:
        """Moves the checkpoint on where the feed has numbers without events."""
        stint = self._stint
        with stint.transaction() as held:
            self._assure()
            to = replace(stint.advance(0, None), position=position)
            checkpoint = (held or stint.session).advance(stint.checkpoint, to)
        stint.committed(checkpoint, [])

    def _apply(self, events: Sequence[RawEvent]) -> int:
        """One transaction, or as many as it takes to find the event that can't be stored."""
        is_wary, self._is_wary = self._is_wary, False
        try:
            try:
                return self._commit([events], singly=is_wary)
            except (Unrepeatable, BatchRefused):
                return self._commit([events], singly=True)
        except BatchLost as lost:
            error = lost.error
            part = events[: _index(events, lost.event)]
        except Exception as refusal:
            if not (isinstance(refusal, BatchRefused) or self._stint.session.refused(refusal)):
                raise
            # What the events left behind can't be stored: halves them until one is left.
            error = refusal.__cause__ or refusal if isinstance(refusal, BatchRefused) else refusal
            part = events[: len(events) // 2]
        if part:
            return self._apply(part)
        event = events[0]
        ruling = self._stint.rule(event, self._stint.lane_of(event), error)
        assert ruling is not None
        self._rulings[event.position] = ruling
        return self._commit([events[:1]], singly=False)

    def _commit(self, chunks: Iterable[Sequence[RawEvent]], *, singly: bool) -> int:
        """One transaction, with as many events as there is time for; returns how many."""
        stint = self._stint
        made, monotonic = _Made(), stint.clock.monotonic
        began = monotonic()
        self._known, self._woken = 0, set()
        with (
            stint.transaction() as held,
            stint.engine.batch(stint.checkpoint, held, from_queue=False, singly=singly) as batch,
        ):
            folds = isinstance(stint.definition.kind, Fold) and held is None
            most_seconds = left = FOLD_SECONDS if folds else SLICE_SECONDS
            for events in chunks:
                # To read may take long, and is no reason to apply less of what was read.
                taken_at = monotonic()
                made.until = taken_at + left
                stint.expect(events)
                batch.expect(events)
                if not self._take(batch, events, made):
                    break
                now = monotonic()
                left -= now - taken_at
                if now - began >= most_seconds:
                    break
            if made.last is None:
                return 0
            self._assure()
            advance = stint.advance(made.events - len(made.entries) - self._known, made.last)
            checkpoint = self._finish(batch, advance, made.entries)
        stint.lanes.commit()
        if self._known:
            stint.emit(Duplicates(*stint.names, self._known))
        self._settle(made.entries)
        stint.committed(checkpoint, made.recorded)
        if made.halted is not None:
            raise made.halted
        return made.events

    def _take(self, batch: Batch, events: Sequence[RawEvent], made: _Made) -> bool:
        """Applies events, in the transaction; returns whether more can be."""
        stint, done = self._stint, 0
        while done < len(events):
            done, failed = self._plain(batch, events, done, made.until)
            has_some = bool(done or made.events)
            if done == len(events) or (
                has_some and failed is None and self._is_over(batch, made.until)
            ):
                break
            try:
                entry = self._one(batch, events[done], failed)
            except Blocked as halted:
                if not has_some:
                    raise
                made.halted = halted
                break
            if entry is not None:
                if entry.status in OUTSTANDING:
                    entry = replace(entry, event=stint.ledger.waits(entry.event))
                made.entries.append(entry)
                stint.lanes.add(entry)
            done += 1
            if self._is_over(batch, made.until):
                break
        made.events += done
        if done:
            made.last = events[done - 1]
        if stint.judge.has_records:
            made.recorded += stint.judge.recorded(events[:done])
        return done == len(events) and not self._is_over(batch, made.until)

    def _finish(self, batch: Batch, advance: Advance, entries: Sequence[NewItem]) -> Checkpoint:
        """Writes all that goes with the events; returns the checkpoint behind them."""
        stint = self._stint
        if not (entries or self._woken or stint.definition.foreign):
            return batch.advance(stint.checkpoint, advance)
        with batch.finished() as work:
            checkpoint = work.advance(stint.checkpoint, advance)
            stint.ledger.write(work, checkpoint)
            if entries:
                added = work.enqueue(checkpoint, entries, advance.at)
                stint.lanes.discount(e for e in entries if e.event.position not in added)
                dead = [e for e in entries if e.status == "dead" and e.event.position in added]
                letters = ((e.lane, e.event, kept(e.event), e.record) for e in dead)
                stint.send_letters(work, letters)
            for lane in self._woken:
                stint.lanes.wake(lane, advance.at)
            if entries or self._woken:
                work.write_lanes(checkpoint, stint.lanes.begun())
        return checkpoint

    def _plain(
        self, batch: Batch, events: Sequence[RawEvent], start: int, until: float
    ) -> tuple[int, EventFailed | None]:
        """Applies events from `start` on, up to the first with which something is the matter.

        Returns where that is, and how it failed if it was tried.
        """
        plain = FastPath(self._stint, batch, events, at=start, until=until, ruled=self._rulings)
        ran = batch.run(plain)
        if ran.has_applied:
            self._stint.judge.succeeded()
        if ran.failed is not None:
            at = _index(events, ran.failed.event, start)
            self._stint.ledger.unpass(ran.failed.event)
            return at, ran.failed
        return plain.at, None

    def _is_over(self, batch: Batch, until: float) -> bool:
        stint = self._stint
        return batch.is_full or stint.stopping() or stint.clock.monotonic() >= until

    def _one(self, batch: Batch, event: RawEvent, failed: EventFailed | None) -> NewItem | None:
        """Applies one event; returns the entry that it makes in the queue instead, if any.

        `failed`: it has been tried, and this came of it.
        """
        stint, ledger = self._stint, self._stint.ledger
        if stint.lanes.is_resolved(event):
            return None
        place = ledger.place(event)
        if place == "duplicate":
            self._known += 1
            return None
        overtakes = False
        if stint.lanes and (ledger.counts_all or stint.definition.handles(event.type)):
            lane = batch.lane_of(event)
            if stint.lanes.get(lane) is not None:
                overtakes = place == "next" and ledger.overtakes(event)
                if not overtakes:
                    self._check_room(event, lane)
                    return NewItem(event, lane, "pending")
            if stint.is_held(event):
                self._check_room(event, lane)
                later = stint.clock.now() + timedelta(seconds=LOOK_LATER_SECONDS)
                return NewItem(event, lane, "pending", next_attempt_at=later)
        ruling = self._rulings.get(event.position)
        if ruling is None and place == "early" and (gap := ledger.gap(event)) is not None:
            ledger.look_again(event)
            return self._await(event, batch.lane_of(event), gap)
        if ruling is None:
            try:
                if failed is not None:
                    raise failed
                stint.attempt(batch, event)
            except EventFailed as found:
                self._assure()  # A policy is asked about events of the feed alone.
                ruling = stint.rule(event, batch.lane_of(event), found.error, batch)
        if ruling is None or isinstance(ruling, Skip):
            ledger.passed(event)
            if overtakes:
                self._woken.add(batch.lane_of(event))
            if ruling is None:
                return None
        entry = self._entry(event, batch.lane_of(event), ruling)
        self._rulings[event.position] = ruling
        return entry

    def _await(self, event: RawEvent, lane: str, gap: VersionGap) -> NewItem:
        """An event that came too early waits in its lane for those before it."""
        self._check_room(event, lane)
        intake, now = self._stint.definition.foreign, self._stint.clock.now()
        assert intake is not None
        record = FailureHistory().after(gap, now)
        until = now + timedelta(seconds=intake.gap_seconds)
        return NewItem(event, lane, "failed", record, until)

    def _entry(self, event: RawEvent, lane: str, ruling: Skip | Park) -> NewItem:
        record = self._stint.judge.record_of(event)
        match ruling:
            case Skip():
                return NewItem(event, lane, "skipped", record)
            case Park(retry):
                self._check_room(event, lane)
                if retry is None:
                    return NewItem(event, lane, "dead", record)
                due_at = self._stint.clock.now() + timedelta(seconds=retry.delay(1))
                return NewItem(event, lane, "failed", record, due_at)
            case _:
                assert_never(ruling)

    def _check_room(self, event: RawEvent, lane: str) -> None:
        why = self._stint.lanes.overflow(lane, self._stint.definition.policy.limits)
        if why is not None:
            error = HoldfastError(
                f"event {event.id} can't wait in lane {lane!r}: {why}. See holdfast queue list; "
                "mend, requeue or resolve what waits, then start the projection again"
            )
            raise Blocked(event, GiveUp(Fatal(), error))

    def _settle(self, entries: Sequence[NewItem]) -> None:
        """The entries are in."""
        stint = self._stint
        behind: dict[str, int] = {}
        for entry in entries:
            event = entry.event
            self._rulings.pop(event.position, None)
            stint.judge.settled(event)
            if entry.status == "pending":
                behind[entry.lane] = behind.get(entry.lane, 0) + 1
                continue
            signal = Skipped if entry.status == "skipped" else Parked
            stint.emit(signal(*stint.names, event.position, event.type, entry.lane))
            if entry.status == "dead":
                stint.emit(Died(*stint.names, event.position, event.type, entry.lane))
        for lane, count in behind.items():
            stint.emit(Queued(*stint.names, lane, count))


@dataclass(slots=True)
class _Made:
    """What has become of events in one transaction, so far.

    `until`: when it ends. `recorded`: the events that have failed before, of which few are kept.
    """

    until: float = 0.0
    events: int = 0
    last: RawEvent | None = None
    entries: list[NewItem] = field(default_factory=list)
    recorded: list[RawEvent] = field(default_factory=list)
    halted: Blocked | None = None


def _index(events: Sequence[RawEvent], event: RawEvent, start: int = 0) -> int:
    return next(i for i in range(start, len(events)) if events[i].position == event.position)
