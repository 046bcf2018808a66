"""The operators' verbs of an App: see what is wrong, and change it, with an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from holdfast.assembly import Assembly
from holdfast.errors import ConfigError, HoldfastError, ProjectionFaulted, WaitTimeout
from holdfast.model import arguments
from holdfast.model.compile_projection import check_shards
from holdfast.model.definition import Definition, Handle, Publish
from holdfast.model.start import Target, check_target
from holdfast.running import STOP_SECONDS
from holdfast.runtime.run.foreign_source import ForeignSource
from holdfast.runtime.shards.layout import ShardLayout
from holdfast.runtime.shards.shard_worker import ShardWorker
from holdfast.runtime.signals import Changed
from holdfast.runtime.status import ProjectionStatus
from holdfast.runtime.store.faults import fault_message
from holdfast.runtime.store.queue_items import AuditRow
from holdfast.sql.database import refuse_handlers
from holdfast.sql.migrations import migrate
from holdfast.sql.operate import clearing, lifecycle
from holdfast.sql.operate import status as statuses
from holdfast.sql.operate.explain import Reason, explain
from holdfast.sql.operate.forward import (
    Forward,
    forward_foreign,
    forward_journal,
    preview_journal,
)
from holdfast.sql.operate.lag import Lag, read_lag, takes_of
from holdfast.sql.operate.settings import Setting, drop_overrides, override, read_settings
from holdfast.sql.process_name import process_name
from holdfast.sql.store.audit import ChangedBy, read_audit


class Operations(Assembly):
    """What operators do with projections; an App has all of it."""

    def status(self) -> list[ProjectionStatus]:
        """How far each projection is, and what is wrong with it.

        Lists what has ever run on this database; a registered projection appears with its first
        run.
        """
        if not self.has_tables():
            return []
        takes = {definition.name: takes_of(definition) for definition in self._catalog}
        return statuses.read_status(self._database, self._clock, self._heads(), takes)

    def lag(self, projection: str | type, *, event_types: Sequence[str | type] = ()) -> Lag:
        """What a projection of the journal still has to apply, of all event types or of some.

        Counts every event; `status` is quicker.
        """
        definition = self._catalog.find_projection(projection, "be measured")
        if definition.foreign is not None:
            raise ConfigError(
                f"projection {definition.name!r} reads from Kafka, and only the brokers know what "
                "types are left; holdfast status has its lag"
            )
        if not self.has_tables():
            return Lag(0, 0.0, 0, 0.0)
        if isinstance(event_types, str | type):
            raise ConfigError(f"event_types is {event_types!r}; it is a list of names or classes")
        names = {self.events.name_of(t) if isinstance(t, type) else t for t in event_types}
        takes = names.__contains__ if event_types else None
        return read_lag(self._database, self._clock, definition, takes)

    def explain(self, projection: str | type) -> list[Reason]:
        """Why a projection does not advance; the last reason says how much there is to do."""
        definition = self._catalog.find(projection)
        if not self.has_tables():
            text = "it has never run here: the database has no holdfast tables yet"
            return [Reason(kind="no_worker", text=text, fields={"leader": None})]
        heads = self._heads(definition.name)
        return explain(self._database, self._clock, definition, heads, takes_of(definition))

    def tables(self, projection: str | type) -> list[str]:
        """The tables that a projection has made on this database, which a reset would clear."""
        definition = self._catalog.find(projection)
        if not self.has_tables():
            return []
        return lifecycle.owned_tables(self._database, definition)

    def tables_left(self, projection: str | type) -> list[str]:
        """The tables that a projection writes and a reset leaves, as far as its SQL shows.

        They are not its own, and its class has no `clear`.
        """
        return clearing.tables_left(self._catalog.find(projection))

    def has_clear(self, projection: str | type) -> bool:
        """Whether a reset calls `clear` of the projection's class."""
        return clearing.has_clear(self._catalog.find(projection))

    def has_effects(self, projection: str | type) -> bool:
        """Whether its handlers may do more than write tables; a reset has them do that again.

        They may append events, send messages, publish, or call other systems.
        """
        return isinstance(self._catalog.find(projection).kind, Handle | Publish)

    def audit(self, projection: str | type | None = None, *, limit: int = 100) -> list[AuditRow]:
        """What operators have changed, the latest first: who, when, what and why."""
        name = None if projection is None else self._catalog.find(projection).name
        arguments.whole("limit", limit)
        if not self.has_tables():
            return []
        return read_audit(self._database, name, limit)

    def pause(self, projection: str | type, *, by: str, note: str | None = None) -> bool:
        """Stops a projection's work until it is resumed; returns whether it was not paused before.

        When this returns nothing more is committed, in whatever process it runs. It outlives
        restarts.
        """
        definition = self._catalog.find(projection)
        self._prepare()
        is_paused = lifecycle.pause(self._database, definition, self._changed(by, note))
        if is_paused:
            self._tell(definition, "pause", by)
        return is_paused

    def resume(self, projection: str | type, *, by: str, note: str | None = None) -> bool:
        """Lets a paused projection go on; returns whether it was paused."""
        definition = self._catalog.find(projection)
        self._prepare()
        is_resumed = lifecycle.resume(self._database, definition.name, self._changed(by, note))
        if is_resumed:
            self._tell(definition, "resume", by)
        return is_resumed

    def settings(self, projection: str | type) -> list[Setting]:
        """The settings of a projection that can be changed while it runs."""
        definition = self._catalog.find(projection)
        return read_settings(self._database if self.has_tables() else None, definition)

    def override(
        self,
        projection: str | type,
        values: Mapping[str, Any],
        *,
        by: str,
        note: str | None = None,
    ) -> None:
        """Sets values in place of the code's: `{"poll.interval_seconds": 5}`.

        They are kept in the database, until `drop_overrides`. Workers take them up while they run.
        """
        definition = self._catalog.find(projection)
        self._prepare()
        override(self._database, definition, values, self._changed(by, note))
        self._tell(definition, "set", by)

    def drop_overrides(
        self,
        projection: str | type,
        names: Sequence[str] | None = None,
        *,
        by: str,
        note: str | None = None,
    ) -> list[str]:
        """Has the code's values count again, of these settings or of all; returns their names."""
        definition = self._catalog.find(projection)
        self._prepare()
        dropped = drop_overrides(self._database, definition, names, self._changed(by, note))
        if dropped:
            self._tell(definition, "unset", by)
        return dropped

    def retry(self, projection: str | type, *, by: str, note: str | None = None) -> bool:
        """Has a projection that has stopped at an error, or waits for a retry, try again at once.

        Workers that run go on with it, and need no restart. Returns whether it had stopped or
        waited. Raises ProjectionFaulted if only a reset helps.
        """
        definition = self._catalog.find(projection)
        self._prepare()
        is_retried = bool(lifecycle.retry(self._database, definition.name, self._changed(by, note)))
        if is_retried:
            self._tell(definition, "retry", by)
        return is_retried

    def reset(
        self, projection: str | type, *, by: str | None = None, note: str | None = None
    ) -> list[str]:
        """Clears a projection's tables, checkpoint and queue in one transaction.

        Returns the tables. Where the class has a `clear`, that is called in the transaction. A
        worker that runs it now begins again at the first event. Without `by`, the audit names this
        process.
        """
        self._refuse_handlers("be reset")
        definition = self._catalog.find_projection(projection, "be reset")
        self._prepare()
        change = self._changed(by, note)
        tables = lifecycle.reset(self._database, definition, change)
        self._tell(definition, "reset", change.by)
        return tables

    def rewind(
        self,
        projection: str | type,
        *,
        by: str,
        to: int | None = None,
        note: str | None = None,
    ) -> int:
        """Goes back to a position, or without one to before the first skipped event.

        Returns the position. Raises ConfigError, with the reason, where events that are applied
        again would not leave the rows as they are.
        """
        arguments.whole_or_none("to", to)
        definition = self._catalog.find_projection(projection, "be rewound")
        self._prepare()
        position = lifecycle.rewind(self._database, definition, to, self._changed(by, note))
        self._tell(definition, "rewind", by)
        return position

    def forward(
        self,
        projection: str | type,
        to: Target,
        *,
        by: str,
        feed: str | None = None,
        note: str | None = None,
        preview: bool = False,
    ) -> list[Forward]:
        """Goes on from a later place; events before it that were not tried are never applied.

        `to` is "now", a position, with whose next event to go on, or a time. What is parked or has
        failed stays in the queue. On Kafka, `feed` is a partition, and `to` an offset; without
        `feed`, "now" or a time moves all partitions. Streams that miss some of their versions then
        come to a gap. With `preview`, nothing is changed. Returns what was passed.
        """
        check_target("to", to)
        definition = self._catalog.find_projection(projection, "be moved forward")
        change = self._changed(by, note)
        self._prepare()
        source = self._sources.get(definition.name)
        if source is not None:
            targets = _targets(source, to, feed)
            done = forward_foreign(self._database, definition, targets, None if preview else change)
        elif feed is not None:
            raise ConfigError(f"projection {definition.name!r} reads the journal: leave out feed")
        elif preview:
            return preview_journal(self._database, definition, to, change.at)
        else:
            done = forward_journal(self._database, definition, to, change)
        if not preview:
            self._tell(definition, "forward", by)
        return done

    def reshard(
        self,
        projection: str | type,
        *,
        by: str,
        shards: int | None = None,
        note: str | None = None,
        timeout_seconds: float | None = None,
    ) -> int:
        """Changes how many shards a projection has, while it runs or not; returns the number.

        Without `shards`, it is what the code says. The present shards go on to the furthest
        position that one of them has reached, and others begin there: nothing is lost, and nothing
        is applied twice. Takes part in that itself. When it ends before (WaitTimeout, or a crash),
        workers finish the change, or the next call does; the former number takes it back.
        """
        self._refuse_handlers("be resharded")
        definition = self._catalog.find_projection(projection, "be resharded")
        shards = definition.shards if shards is None else shards
        check_shards(definition, shards)
        if shards > 1 and definition.shards == 1:
            raise ConfigError(
                f"this code says nothing of shards, so that workers that run it would stop; "
                f"register projection {definition.name!r} with shards={shards} first"
            )
        self._prepare()
        if self._layouts.plan(definition, shards, self._changed(by, note)).next_shards is None:
            return shards
        worker = ShardWorker(definition, self._context(definition), self._layouts, changes=True)
        supervisor = self._supervise([worker])
        supervisor.start()
        is_done = supervisor.join(timeout_seconds)
        if not is_done:
            supervisor.stop()
            supervisor.join(STOP_SECONDS)
        if self._layouts.layout(definition.name) == ShardLayout(shards):
            self._tell(definition, "reshard", by)
            return shards
        name, now = definition.name, self._layouts.layout(definition.name)
        back = f"holdfast reshard {name} --to {now.shards} takes it back"
        if worker.fault is not None:
            raise ProjectionFaulted(
                f"{fault_message(name, worker.fault)}; the change to {shards} shards waits for "
                f"that shard, and goes on when it does; {back}"
            ) from worker.fault.error
        if shards not in (now.shards, now.next_shards):
            raise HoldfastError(
                f"somebody else has changed projection {name!r} to "
                f"{now.next_shards or now.shards} shards meanwhile"
            )
        raise WaitTimeout(
            f"projection {name!r} is not in {shards} shards after {timeout_seconds} s; its "
            f"workers go on with that, and so does the same command; {back}"
        )

    def depose(
        self, projection: str | type, *, by: str | None = None, note: str | None = None
    ) -> int:
        """Takes a projection from the process that runs it, frozen or not; returns how many did.

        Without `by`, the audit names this process.
        """
        refuse_handlers(self._database, "a projection")
        definition = self._catalog.find(projection)
        self._prepare()
        change = self._changed(by, note)
        deposed = lifecycle.depose(self._database, definition.name, change)
        self._tell(definition, "depose", change.by)
        return deposed

    def migrate(self) -> int:
        """Creates or updates holdfast's own tables; returns how many migrations ran.

        Outbox projections and sinks are known to the database from then on.
        """
        ran = migrate(self._database)
        self._prepare()
        return ran

    def _changed(self, by: str | None, note: str | None) -> ChangedBy:
        refuse_handlers(self._database, "a projection")
        return ChangedBy(process_name() if by is None else by, self._clock.now(), note)

    def _tell(self, definition: Definition, action: str, by: str) -> None:
        self._signals.emit(Changed(definition.name, definition.feed, action, by))

    def _heads(self, projection: str | None = None) -> dict[tuple[str, str], int]:
        """Where the feeds of foreign sources end, as far as that can be had."""
        found: dict[tuple[str, str], int] = {}
        for name, source in self._sources.items():
            if projection in (None, name):
                with suppress(HoldfastError):
                    found |= {(name, feed): head for feed, head in source.heads().items()}
        return found


def _targets(source: ForeignSource, to: Target, feed: str | None) -> Mapping[str, int]:
    """The offset to go on with, of each partition."""
    heads = source.heads()
    if feed is not None and feed not in heads:
        raise ConfigError(f"there is no partition {feed!r}; there are {', '.join(sorted(heads))}")
    if isinstance(to, int):
        if feed is None:
            raise ConfigError("an offset is one of a partition; say which: feed='topic[partition]'")
        if to > heads[feed]:
            raise ConfigError(f"{feed} ends at offset {heads[feed]}, so nothing is gone up to {to}")
        return {feed: to}
    found = source.heads_at(to) if isinstance(to, datetime) else heads
    return found if feed is None else {feed: found[feed]}
