"""PartitionRunner: runs a projection on one partition."""

from __future__ import annotations

from dataclasses import replace

from holdfast.kafka.group_leases import GroupLeases
from holdfast.kafka.partition import Partition
from holdfast.kafka.partition_source import PartitionSource
from holdfast.kafka.subscription import Subscription
from holdfast.model.definition import Definition
from holdfast.runtime.run.runner import Runner
from holdfast.runtime.run.worker import RunnerContext
from holdfast.runtime.signals import Committed, Signal, Signals, Started
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source


class PartitionRunner(Runner):
    """Runs a projection on one partition, while it is assigned to this process."""

    def __init__(
        self,
        definition: Definition,
        context: RunnerContext,
        subscription: Subscription,
        partition: Partition,
        *,
        in_group: bool,
    ) -> None:
        self.partition, self.is_assigned = partition, True
        self.position = self.reported = 0
        """The committed position, and the last one that was reported to the group."""
        self.source = PartitionSource(subscription, partition, stopping=lambda: self.has_stopped)
        signals = Signals()
        signals.listen(self._follow_position)
        signals.listen(context.signals.emit)
        leases = context.leases
        if in_group:
            leases = GroupLeases(leases, context.clock, is_assigned=lambda: self.is_assigned)
        context = replace(
            context,
            feed=partition.feed,
            open_source=self._open_source,
            leases=leases,
            signals=signals,
        )
        super().__init__(definition, context, until=None if in_group else self._head())

    def run(self) -> None:
        """Blocks until the runner ends; afterwards `fault` says if something is wrong."""
        try:
            super().run()
        finally:
            self.source.close()

    def _head(self) -> int:
        try:
            return self.source.head()
        finally:
            self.source.close()

    def _open_source(self, session: Session) -> Source:
        return self.source.on(session)

    def _follow_position(self, signal: Signal) -> None:
        if isinstance(signal, Started | Committed):
            self.position = signal.position
            self.source.committed(signal.position)
