"""PartitionRunner: runs a projection on one partition, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from holdfast.kafka.group_leases import GroupLeases
from holdfast.kafka.partition import Partition
from holdfast.kafka.partition_source import PartitionSource
from holdfast.kafka.subscription import Subscription
from holdfast.model.definition import Definition
from holdfast.runtime.run.runner import Runner
from holdfast.runtime.run.worker import RunnerContext
from holdfast.runtime.signals import Committed, Signal, Signals, Started
from holdfast.runtime.store.faults import Fault
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.source import Source


class PartitionRunner:
    """One partition on which this process runs a projection.

    At its end the runner calls `ended` on its thread, with its fault if it has one.
    """

    def __init__(
        self,
        definition: Definition,
        wiring: RunnerContext,
        subscription: Subscription,
        partition: Partition,
        *,
        in_group: bool,
        ended: Callable[[Fault | None], None],
    ) -> None:
        self.partition, self.is_assigned = partition, True
        self.position = self.reported = 0
        """The committed position, and the last one that was reported to the group."""
        self._ended = ended
        signals = Signals()
        signals.listen(self._follow_position)
        signals.listen(wiring.signals.emit)
        leases = wiring.leases
        if in_group:
            leases = GroupLeases(leases, wiring.clock, is_assigned=lambda: self.is_assigned)
        self.source = PartitionSource(
            subscription, partition, stopping=lambda: self.runner.has_stopped
        )
        self.runner = Runner(
            definition,
            replace(
                wiring,
                feed=partition.feed,
                open_source=self._open_source,
                leases=leases,
                signals=signals,
            ),
            until=None if in_group else self._head(),
        )
        name = f"holdfast {definition.name} {partition.feed}"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

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

    def _run(self) -> None:
        try:
            self.runner.run()
        except BaseException as error:
            self.runner.crash(error)
            raise
        finally:
            self._ended(self.runner.fault)
            self.source.close()
