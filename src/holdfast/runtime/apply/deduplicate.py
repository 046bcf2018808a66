"""Deduplication: which events of a feed were applied before, and which come too early.

The journal's positions say all that. On a feed that other systems write, an event may come twice,
or before one that precedes it in its stream. What is known is read once and written once for each
batch, in the transaction that writes the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable
from datetime import datetime, timedelta
from typing import Literal, Protocol
from uuid import UUID

import msgspec

from holdfast.errors import Revised
from holdfast.model.event import RawEvent
from holdfast.model.foreign_feed import ForeignFeed, VersionGap
from holdfast.runtime.caches import drop_oldest
from holdfast.runtime.limits import RuntimeLimits
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.foreign_versions import ForeignVersions

Arrival = Literal["next", "duplicate", "early"]
"""How an event arrives: in its turn, again, or too early."""

NEW = -1
"""The version of a stream without an event."""


class Deduplication(Protocol):
    """What is known of the events that have passed."""

    counts_all: bool
    """Whether events without a handler count too."""

    def load(self, events: Iterable[RawEvent]) -> Collection[str]:
        """Looks up what is needed to place events; returns the streams that it had to look up."""

    def place(self, event: RawEvent) -> Arrival: ...

    def fast_path(self, events: Iterable[RawEvent]) -> Generator[RawEvent, None, int]:
        """Yields events up to the first that is not in its turn; returns how many.

        An event has `passed` when the next one is taken.
        """

    def begin_run(self) -> None:
        """A run of `fast_path` begins, whose end `unpass` may take back."""

    def unpass(self, failed: RawEvent) -> None:
        """An event of the run has failed: neither it nor an event behind it has passed."""

    def gap(self, event: RawEvent) -> VersionGap | None:
        """Why an event is too early; None if an operator has dealt with the one before it."""

    def check_unmoved(self, event: RawEvent) -> None:
        """Raises Revised if the event's stream has moved on by another feed."""

    def overtakes(self, event: RawEvent) -> bool:
        """Whether an event in its turn belongs before all that waits in its closed lane."""

    def waits(self, event: RawEvent) -> RawEvent:
        """The event is about to wait in its lane; returns it with the version that orders it."""

    def passed(self, event: RawEvent) -> None:
        """The event is about to be applied, or skipped."""

    def write(self, checkpoint: Checkpoint) -> None:
        """Writes what has passed; raises Revised if a stream has moved on by another feed."""

    def commit(self) -> None: ...

    def forget(self) -> None:
        """The transaction is not committed, or other runners may have changed something."""


def deduplication_of(
    foreign: ForeignFeed | None,
    versions: ForeignVersions,
    checkpoint: Checkpoint,
    limits: RuntimeLimits,
) -> Deduplication:
    """The deduplication of one projection on one feed."""
    if foreign is None:
        return TrustedOrder()
    if foreign.contiguous:
        return VersionTracker(foreign, versions, checkpoint, limits)
    return SeenIds(foreign, versions, checkpoint)


class TrustedOrder:
    """For the journal: every event has its turn, once."""

    counts_all = False

    def load(self, events: Iterable[RawEvent]) -> Collection[str]:  # noqa: ARG002
        return ()

    def place(self, event: RawEvent) -> Arrival:  # noqa: ARG002
        return "next"

    def fast_path(self, events: Iterable[RawEvent]) -> Generator[RawEvent, None, int]:
        events = [*events]
        yield from events
        return len(events)

    def gap(self, event: RawEvent) -> VersionGap | None:
        raise AssertionError(f"event {event.id} is not early")

    def check_unmoved(self, event: RawEvent) -> None: ...

    def overtakes(self, event: RawEvent) -> bool:  # noqa: ARG002
        return False

    def waits(self, event: RawEvent) -> RawEvent:
        return event

    def passed(self, event: RawEvent) -> None: ...

    def begin_run(self) -> None: ...

    def unpass(self, failed: RawEvent) -> None: ...

    def write(self, checkpoint: Checkpoint) -> None: ...

    def commit(self) -> None: ...

    def forget(self) -> None: ...


class VersionTracker:
    """Streams whose versions count without a gap: the last version of each.

    A stream is a projection's, not a feed's: when it moves to another feed, it goes on there.
    """

    counts_all = True

    def __init__(
        self,
        foreign: ForeignFeed,
        versions: ForeignVersions,
        checkpoint: Checkpoint,
        limits: RuntimeLimits,
    ) -> None:
        self._foreign, self._versions, self._checkpoint = foreign, versions, checkpoint
        self._cached_streams = limits.cached_streams
        self._known: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self._times: dict[str, datetime] = {}
        """When the last events of streams were recorded that the open transaction moves on."""
        self._run: list[tuple[RawEvent, int]] = []
        """The events of a run, with the versions of their streams before."""
        self._waiting: dict[str, tuple[float, int]] = {}

    def load(self, events: Iterable[RawEvent]) -> Collection[str]:
        missing = {event.stream for event in events if event.stream not in self._known}
        if missing:
            found = self._versions.read_versions(self._checkpoint, sorted(missing))
            for stream in missing:
                self._known[stream] = found.get(stream, NEW)
        return missing

    def place(self, event: RawEvent) -> Arrival:
        if event.type in self._foreign.unnumbered:
            return "next"
        last = self._last(event.stream)
        if last == NEW:
            first = self._foreign.first_version
            # One below the first has not been here either: an operator has to see it.
            return "next" if first is None or event.version == first else "early"
        if event.version == last + 1:
            return "next"
        if event.version > last:
            return "early"
        return "next" if self._begins_again(event) else "duplicate"

    def _begins_again(self, event: RawEvent) -> bool:
        """Whether a stream begins anew with an event, because it was silent for long enough."""
        seconds, stream = self._foreign.restart_seconds, event.stream
        if seconds is None or event.version != self._first:
            return False
        last_at = self._times.get(stream)
        if last_at is None:
            last_at = self._versions.last_time(self._checkpoint, stream)
        return last_at is not None and event.recorded_at >= last_at + timedelta(seconds=seconds)

    def fast_path(self, events: Iterable[RawEvent]) -> Generator[RawEvent, None, int]:
        # By `place` and `passed`, for nearly all events there are.
        begun, known, unnumbered = self._begun, self._known, self._foreign.unnumbered
        count = 0
        for event in events:
            stream, version = event.stream, event.version
            last = begun[stream] if stream in begun else known[stream]
            if event.type in unnumbered:
                break
            if (version != last + 1 or last == NEW) and self.place(event) != "next":
                break
            yield event
            begun[stream] = version
            if self._foreign.restart_seconds is not None:
                self._times[stream] = event.recorded_at
            self._run.append((event, last))
            count += 1
        return count

    def gap(self, event: RawEvent) -> VersionGap | None:
        last, before = self._last(event.stream), event.version - 1
        if self._versions.is_resolved(
            self._checkpoint, event.stream, before, even_early=last == before - 1
        ):
            return None
        if last == NEW and event.version < self._first:
            return VersionGap(
                f"version {event.version} of stream {event.stream!r} is below {self._first}, with "
                "which streams begin here; if they begin with it, say first_version="
                f"{event.version} and requeue it"
            )
        if last == NEW:
            what = f"is the first one seen of its stream, which begins at {self._first}"
        else:
            what = f"follows version {last}"
        return VersionGap(
            f"version {event.version} of stream {event.stream!r} {what}: what is between has not "
            "come. If it comes, this goes on by itself; if it never will, holdfast queue requeue "
            "--accept-gap goes on without it"
        )

    def check_unmoved(self, event: RawEvent) -> None:
        stream = event.stream
        now = self._versions.read_versions(self._checkpoint, [stream]).get(stream, NEW)
        if now != self._known[stream]:
            # Its rows have changed with it, and may be in memory as they were.
            raise Revised(f"stream {stream!r} has moved on by another feed")

    def overtakes(self, event: RawEvent) -> bool:
        if event.type in self._foreign.unnumbered:
            return False
        return event.version < self._waiting_in(event.stream)[0]

    def waits(self, event: RawEvent) -> RawEvent:
        first, last = self._waiting_in(event.stream)
        if event.type in self._foreign.unnumbered:
            # Behind what came before it.
            event = msgspec.structs.replace(event, version=last)
        version = event.version
        self._waiting[event.stream] = min(first, version), max(last, version)
        return event

    def passed(self, event: RawEvent) -> None:
        if event.type not in self._foreign.unnumbered:
            self._begun[event.stream] = event.version
            if self._foreign.restart_seconds is not None:
                self._times[event.stream] = event.recorded_at

    def begin_run(self) -> None:
        self._run.clear()

    def unpass(self, failed: RawEvent) -> None:
        while self._run and self._run[-1][0].position >= failed.position:
            event, before = self._run.pop()
            self._begun[event.stream] = before
            if self._begun[event.stream] == self._known[event.stream]:
                del self._begun[event.stream]

    def write(self, checkpoint: Checkpoint) -> None:
        if self._begun:
            # In order: neighbours are quicker to write together.
            steps = {
                stream: (self._known[stream], self._begun[stream]) for stream in sorted(self._begun)
            }
            self._versions.write_versions(checkpoint, steps)
            if self._times:
                self._versions.write_times(checkpoint, self._times)

    def commit(self) -> None:
        self._known |= self._begun
        self._begun.clear()
        self._times.clear()
        self._waiting.clear()
        drop_oldest(self._known, most=self._cached_streams)

    def forget(self) -> None:
        self._known.clear()
        self._begun.clear()
        self._times.clear()
        self._waiting.clear()

    @property
    def _first(self) -> int:
        first = self._foreign.first_version
        return 1 if first is None else first

    def _waiting_in(self, stream: str) -> tuple[float, int]:
        """The first and the last version that wait in a stream's lane."""
        known = self._waiting.get(stream)
        if known is None:
            found = self._versions.waiting_versions(self._checkpoint, stream)
            known = found or (math.inf, max(self._last(stream), self._first - 1))
            self._waiting[stream] = known
        return known

    def _last(self, stream: str) -> int:
        return self._begun.get(stream, self._known[stream])


class SeenIds:
    """Events without versions that count: the ids of the last ones."""

    counts_all = False

    def __init__(
        self, foreign: ForeignFeed, versions: ForeignVersions, checkpoint: Checkpoint
    ) -> None:
        self._foreign, self._versions, self._checkpoint = foreign, versions, checkpoint
        self._seen: set[UUID] = set()
        self._begun: dict[UUID, int] = {}
        self._run: list[RawEvent] = []

    def load(self, events: Iterable[RawEvent]) -> Collection[str]:
        self._seen = set(self._versions.seen_ids(self._checkpoint, [e.id for e in events]))
        return ()

    def place(self, event: RawEvent) -> Arrival:
        return "duplicate" if event.id in self._seen or event.id in self._begun else "next"

    def fast_path(self, events: Iterable[RawEvent]) -> Generator[RawEvent, None, int]:
        count = 0
        for event in events:
            if event.type in self._foreign.unnumbered or self.place(event) != "next":
                break
            yield event
            self.passed(event)
            self._run.append(event)
            count += 1
        return count

    def gap(self, event: RawEvent) -> VersionGap | None:
        raise AssertionError(f"event {event.id} has no version that counts")

    def check_unmoved(self, event: RawEvent) -> None: ...

    def overtakes(self, event: RawEvent) -> bool:  # noqa: ARG002
        return False

    def waits(self, event: RawEvent) -> RawEvent:
        # In the order of the feed: what others call a version may count something else.
        return msgspec.structs.replace(event, version=event.position)

    def passed(self, event: RawEvent) -> None:
        self._begun[event.id] = event.position

    def begin_run(self) -> None:
        self._run.clear()

    def unpass(self, failed: RawEvent) -> None:
        while self._run and self._run[-1].position >= failed.position:
            del self._begun[self._run.pop().id]

    def write(self, checkpoint: Checkpoint) -> None:
        if self._begun:
            self._versions.write_seen(checkpoint, self._begun, keep=self._foreign.window_events)

    def commit(self) -> None:
        self._begun.clear()

    def forget(self) -> None:
        self._seen.clear()
        self._begun.clear()
