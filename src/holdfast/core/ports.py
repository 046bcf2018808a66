"""What the core needs from the outside: a clock, a source of events, a store, and leases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

from holdfast.core.definition import Definition
from holdfast.core.errors import StoreUnavailable
from holdfast.core.event import RawEvent
from holdfast.core.intake import Letter
from holdfast.core.projection import Tx
from holdfast.core.queue import Entry, Lane, Setback, Waiting
from holdfast.core.sets import Sets, SetSpec
from holdfast.core.table import Key, TableSpec

State = Literal["running", "stopped", "faulted"]


class Clock(Protocol):
    """Time, passed in, so that tests can hold it still."""

    def now(self) -> datetime:
        """The present, with a time zone."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events in order. `held`: more is there, behind an append that has not committed yet.

    `through`: nothing more will come up to this position, where that is beyond the last event.
    `more`: there is more behind that, though these are fewer than asked for.
    """

    events: Sequence[RawEvent]
    held: bool = False
    through: int = 0
    more: bool = False


class Source(Protocol):
    """Reads one feed. What it returns is settled: nothing smaller appears later."""

    def read(self, after: int, limit: int) -> Chunk:
        """At most `limit` events after position `after`, in order."""

    def head(self) -> int:
        """The largest settled or unsettled position there is; 0 for an empty feed."""

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        """Raises HoldfastError if the feed no longer has what comes after a checkpoint.

        Returns it, moved on to where the feed begins if nothing was read from it before.
        """

    def assure(self) -> None:
        """Raises HoldfastError if what was read is not the feed's: before it is committed."""

    def forget(self) -> None:
        """A person has changed something: what was read before may be different now."""

    def wait(self, timeout_seconds: float) -> bool:
        """Returns when something may have been added since the last read, or in time; and which."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a projection has come on a feed, and who may move it on.

    `epoch` fences runners; `revision` counts what people have changed. `unclean_ends`: so many
    processes in a row have died here. `mark_position`: so many (`mark_attempts`) of them died at
    this event, which was alone. `asked_by`: the process to which its leader should leave it.
    """

    id: int
    projection: str
    feed: str
    position: int
    epoch: int
    state: State
    events_processed: int
    revision: int
    leader: str | None = None
    paused_by: str | None = None
    unclean_ends: int = 0
    mark_position: int | None = None
    mark_attempts: int = 0
    asked_by: str | None = None


@dataclass(frozen=True, slots=True)
class Advance:
    """A checkpoint's next value, written in the transaction that writes the rows."""

    position: int
    events: int
    last_event_id: UUID | None
    last_event_type: str | None
    at: datetime
    events_per_second: float


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a projection stopped; the event's fields are None where no event is to blame.

    `error` is the exception itself, in the process that has seen it. `needs_reset`: the rows may
    be ahead of the checkpoint, so that going on would apply events twice.
    """

    error_type: str
    error_message: str
    error_stacktrace: str
    at: datetime
    position: int | None = None
    event_id: UUID | None = None
    event_type: str | None = None
    needs_reset: bool = False
    error: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Rows to write: their values, checked, column by column in the table's order.

    `positions`: which event has changed each of them last, by what orders events.
    """

    columns: Sequence[Sequence[Any]]
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)


class TransactionEnded(Exception):
    """A handler has ended the transaction: its rows may be in without the checkpoint."""


class RolledBack(Exception):
    """The database has rolled the whole transaction back; nothing of it is in."""


class Revised(Exception):
    """A person has changed something about the projection: look again. Nothing was written."""


class JoinableTx(Tx, Protocol):
    """What handlers get, and appends can join."""

    has_appended: bool
    """An append has joined it, which readers want to know."""


class HandlerTx(JoinableTx, Protocol):
    """What handlers get, with what holdfast itself keeps in it."""

    callbacks: list[Callable[[], Any]]
    """What is to be called when the transaction is in."""

    failed: BaseException | None
    """The last error of something written; whoever looks at it sets it back."""

    @property
    def is_behind(self) -> bool:
        """Whether something is written of which it is not known that it is done."""

    def flush(self) -> None:
        """Waits until everything written is done; raises the first error of it."""


class Work(Protocol):
    """One open transaction of a runner."""

    def hold(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint as it is now, which no person changes before the transaction ends.

        Raises Fenced if another runner has taken over.
        """

    def handling(self, *, savepoint: bool = False) -> AbstractContextManager[HandlerTx]:
        """Handlers run in this block, and can't end the transaction where that can be prevented.

        `savepoint`: it begins with one.
        """

    def savepoint(self) -> None:
        """From now on `undo` comes back to here."""

    def undo(self) -> None:
        """Takes back what has happened since the savepoint, which stays.

        Raises TransactionEnded or RolledBack where there is nothing left to come back to.
        """

    def check_intact(self) -> None:
        """Raises if a handler has spoilt the transaction.

        TransactionEnded if it may have committed it, RolledBack if it has only undone it.
        """

    def write_rows(self, table: TableSpec, rows: RowChanges) -> None: ...

    def delete_rows(self, table: TableSpec, keys: Sequence[Key]) -> None: ...

    def advance(self, checkpoint: Checkpoint, to: Advance) -> Checkpoint:
        """Moves the checkpoint on; raises Fenced unless epoch and position are as we left them.

        Raises Revised if a person has changed something. What concerns the queue comes after it,
        so that everybody locks the checkpoint first.
        """

    def enqueue(self, checkpoint: Checkpoint, entries: Sequence[Entry], at: datetime) -> set[int]:
        """Adds entries to the queue; returns the positions that were not in it before."""

    def finish_items(self, ids: Sequence[int]) -> None:
        """Takes applied items out of the queue."""

    def set_back(self, setback: Setback, at: datetime) -> None:
        """Notes that an item has failed again."""

    def move_item(self, item_id: int, lane: str) -> None:
        """Puts an item into another lane, where it waits in the order of the feed."""

    def write_versions(self, checkpoint: Checkpoint, steps: Mapping[str, tuple[int, int]]) -> None:
        """Moves streams from one version to another; raises Revised if one is elsewhere by now."""

    def write_seen(self, checkpoint: Checkpoint, ids: Mapping[UUID, int], *, keep: int) -> None:
        """Notes the ids of events, by position, and forgets all but about the last `keep`."""

    def send(self, letter: Letter) -> None:
        """Sends a message to those who take its topic."""

    def write_lanes(self, checkpoint: Checkpoint, lanes: Mapping[str, Lane]) -> None: ...

    def open_lane(self, checkpoint: Checkpoint, lane: str) -> None: ...

    def wake_lanes(self, checkpoint: Checkpoint, stream: str, at: datetime) -> Sequence[str]:
        """Has lanes looked at whose heads are events of the stream; returns their names."""


class Session(Protocol):
    """A runner's own way to the store, used by one thread."""

    def open_checkpoint(self, projection: str, feed: str) -> Checkpoint:
        """The checkpoint, made at position 0 if it is not there."""

    def prepare(self, definition: Definition) -> None:
        """Makes the projection's tables fit its definition, or raises SchemaError."""

    def take_over(
        self, checkpoint: Checkpoint, *, resumed: bool = False, ended_well: bool = False
    ) -> Checkpoint:
        """Raises the epoch, which fences every earlier runner, and marks it running.

        `resumed`: this runner was the last to lead it, and has only lost its connection.
        `ended_well`: the last leader can't have died of an event. What is not known to have ended
        well counts as a death. Raises ProjectionFaulted where only a reset makes the rows right.
        """

    def lead_on(self, checkpoint: Checkpoint) -> None:
        """This session takes the place of the one that its runner had before."""

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        """Raises Fenced if another runner has taken over, or the projection was reset.

        Raises Revised if a person has changed something.
        """

    def closed_lanes(self, checkpoint: Checkpoint) -> Mapping[str, Lane]: ...

    def resolved_ahead(self, checkpoint: Checkpoint) -> Set[int]:
        """Positions after the checkpoint, of a rewind, that a person has dealt with."""

    def lane_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> Sequence[Waiting]:
        """What waits in a lane, in order."""

    def read_versions(self, checkpoint: Checkpoint, streams: Sequence[str]) -> Mapping[str, int]:
        """The last version of those streams that the projection knows, on whatever feed."""

    def seen_ids(self, checkpoint: Checkpoint, ids: Sequence[UUID]) -> Sequence[UUID]:
        """Those of the ids that the projection has seen, on whatever feed."""

    def waiting_versions(self, checkpoint: Checkpoint, lane: str) -> tuple[int, int] | None:
        """The first and the last version that wait in a lane."""

    def undecoded_items(self, checkpoint: Checkpoint, lane: str, limit: int) -> Sequence[Waiting]:
        """What is to be tried in a lane, in whatever place, and could not be decoded before."""

    def renumber(self, checkpoint: Checkpoint, events: Mapping[int, RawEvent]) -> None:
        """Gives items, by id, the stream and version of their events; raises Fenced."""

    def is_resolved(
        self, checkpoint: Checkpoint, stream: str, version: int, *, even_early: bool
    ) -> bool:
        """Whether a person has dealt with a version of a stream; `even_early`: that came early."""

    def begin_feed(
        self, checkpoint: Checkpoint, origin: str, position: int
    ) -> tuple[str, Checkpoint]:
        """Notes what tells the feed from another of its name, and where it begins, if it is new.

        Returns what was noted first, and the checkpoint as it is.
        """

    def begin_feeds(self, projection: str, feeds: Mapping[str, tuple[str, int]]) -> None:
        """The same for all feeds of a projection at once, if it has begun with none of them."""

    def mark(self, checkpoint: Checkpoint, event: RawEvent, attempts: int) -> None:
        """Notes, durably, that this event is tried alone, in case the process dies of it.

        `attempts`: so many times, with this one, processes have tried it alone and died or not yet.
        """

    def note_wait(
        self, checkpoint: Checkpoint, until: datetime, reason: str, *, keep_mark: bool
    ) -> None:
        """Notes, durably, why nothing happens until then. `keep_mark`: nothing was tried."""

    def release(self, checkpoint: Checkpoint) -> None:
        """Marks the projection stopped, unless another runner has taken over."""

    def record_fault(self, checkpoint: Checkpoint, fault: Fault) -> None:
        """Marks the projection faulted, durably, unless another runner has taken over."""

    def sets(self, spec: SetSpec) -> Sets:
        """A SqlProjection's statements on this session."""

    def has_rows(self, table: TableSpec) -> bool:
        """Whether a table has any row at all."""

    def load_rows(
        self, table: TableSpec, keys: Sequence[Key]
    ) -> Mapping[Key, tuple[tuple[Any, ...], int]]:
        """The stored values and position of those rows that exist."""

    def transaction(self) -> AbstractContextManager[Work]:
        """Commits at the end of the block; rolls back if it raises."""

    def advance(
        self, checkpoint: Checkpoint, to: Advance, rows: tuple[TableSpec, RowChanges] | None = None
    ) -> Checkpoint:
        """Writes rows and moves the checkpoint on, as a transaction of its own.

        The same as with `transaction`, and quicker where the database is far away.
        """

    def working(self) -> AbstractContextManager[None]:
        """Users' code runs in this block, and changes nothing in the store but by its `tx`."""

    def abort(self) -> None:
        """Ends the transaction that another thread is in, where that can be done."""

    def unavailable(self, error: BaseException) -> StoreUnavailable | None:
        """The store's failure behind `error`, or None when the store is not to blame."""

    def interrupt(self) -> None:
        """Cancels the statement that runs, if any; may be called from another thread."""

    def refused(self, error: BaseException) -> bool:
        """Whether the store refused values, which come from events, rather than a statement."""

    def rest(self) -> None:
        """Lets go of what it holds open, which is opened again when it is needed."""

    def close(self) -> None: ...


class Lease(Protocol):
    """The right to run a projection, while `held`."""

    @property
    def held(self) -> bool: ...

    @property
    def was_given_back(self) -> bool:
        """Whether the last holder is known to have given it back, rather than died with it."""

    def release(self) -> None: ...


class Leases(Protocol):
    """Hands out leases; at most one process holds a projection's."""

    def acquire(self, checkpoint: Checkpoint) -> Lease | None:
        """The lease, or None while another process has it."""

    def is_taken(self, checkpoint: Checkpoint) -> bool:
        """Whether somebody had the lease a moment ago, so that it need not be asked for."""

    def cut_off(self, checkpoint: Checkpoint) -> None:
        """Undoes what the last leader has begun, where that can be done.

        For whoever comes after it: frozen inside a transaction, it would keep that one waiting.
        """
