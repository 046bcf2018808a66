"""KafkaWorker: runs one projection as a member of its group, with a runner for each partition.

    join the group ──assigned──▶ start a runner: lease, epoch, read from the checkpoint
          ▲                                                │
          └────── revoked: finish, commit, release ◀───────┘

The member only learns from the group which partitions are its own, and always answers in time: slow
handlers, retries that wait and a database that is away delay their partitions, never the group. The
checkpoints are in the store; the group's offsets only follow them, for tools that show its lag.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.errors import PERMANENT, error_of, failure
from holdfast.kafka.partition import Partition
from holdfast.kafka.partition_runner import PartitionRunner
from holdfast.kafka.subscription import Subscription
from holdfast.model.definition import Definition
from holdfast.runtime.run.supervisor import Supervisor
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.store.faults import fault_of

POLL_SECONDS = 0.25
"""Timeout of one poll of the group."""

REPORT_SECONDS = 5.0
"""Interval at which offsets are reported to the group."""

COMMIT_SECONDS = 1.0
"""Timeout of the last report of offsets to the group."""

LEAVE_SECONDS = 5.0
"""Timeout of leaving the group, after the runners have ended."""

TOPIC_CHECK_SECONDS = 30.0
"""Interval of the check whether the topics are still the same."""

REVOKE_SECONDS = 30.0
"""Timeout of the runner of a revoked partition for finishing its batch."""


class KafkaWorker(Worker):
    """Runs one projection on the partitions that its group assigns to this process.

    With `catches_up` it joins no group. It runs on all partitions, up to the ends that they had
    when it started. Where another process runs on the same partition, the lease decides.
    """

    def __init__(
        self,
        definition: Definition,
        context: RunnerContext,
        subscription: Subscription,
        *,
        catches_up: bool,
    ) -> None:
        super().__init__(definition, context, None)
        self._subscription, self._catches_up = subscription, catches_up
        self._runners: dict[Partition, PartitionRunner] = {}
        self._last_positions: dict[Partition, int] = {}
        self._check_topics_at = 0.0
        renewed = None if catches_up else self._renewed
        self._supervisor = Supervisor(ended=self._runner_ended, renewed=renewed)
        self._leaving: threading.Thread | None = None

    def run(self) -> None:
        """Blocks until it ends; afterwards `fault` says if something is wrong."""
        try:
            while not (self._stop.is_set() or self._has_given_up):
                try:
                    if self._catches_up:
                        self._catch_up()
                    else:
                        self._join_group()
                except StoreUnavailable as error:
                    self._back_off(error)
                except HoldfastError as error:
                    self._give_up(fault_of(error, self._context.clock))
        finally:
            self._stop_runners(list(self._runners))

    def stop(self) -> None:
        super().stop()
        self._supervisor.stop()

    def abandon(self) -> None:
        self._supervisor.abandon()

    def runs_this_thread(self) -> bool:
        return self._supervisor.runs_this

    @property
    def has_left_threads(self) -> bool:
        return self._leaving is not None and self._leaving.is_alive()

    # Without a group

    def _catch_up(self) -> None:
        partitions = self._subscription.partitions()
        try:
            for partition in partitions:
                self._start_runner(partition, in_group=False)
        except BaseException:
            self._stop_runners(partitions)
            raise
        self._supervisor.join()
        self._has_given_up = True

    # In a group

    def _join_group(self) -> None:
        self._subscription.partitions()  # Raises if a topic is missing.
        member = self._subscription.clients.member(self.group)
        try:
            member.subscribe(
                list(self._subscription.topics),
                on_assign=self._on_assigned,
                on_revoke=self._on_revoked,
                on_lost=self._on_lost,
            )
            self._poll_group(member)
        except KafkaException as error:
            raise failure(error_of(error), f"group {self.group!r} can't be joined") from error
        finally:
            self._stop_runners(
                list(self._runners), then=lambda: self._report_offsets(member, asynchronous=False)
            )
            self._leave(member)

    def _leave(self, member: Consumer) -> None:
        """Leaves the group; in the background, if that takes long because the brokers are away."""
        leaving = threading.Thread(target=member.close, name="holdfast leaves", daemon=True)
        leaving.start()
        leaving.join(LEAVE_SECONDS)
        self._leaving = leaving

    @property
    def group(self) -> str:
        """The group's name; all its members run the same projection."""
        return f"{self._subscription.group}.{self.definition.name}"

    def _poll_group(self, member: Consumer) -> None:
        report_at = 0.0
        self._recovered()
        while not self._stop.is_set():
            message = member.poll(POLL_SECONDS)
            if message is not None and (error := message.error()) is not None:
                self._check_error(error)
            now = self._context.clock.monotonic()
            if now >= report_at:
                self._report_offsets(member, asynchronous=True)
                report_at = now + REPORT_SECONDS
            if now >= self._check_topics_at:
                self._check_topics()
                self._check_topics_at = now + TOPIC_CHECK_SECONDS

    def _check_error(self, error: KafkaError) -> None:
        """Raises what the member can't recover from by polling again."""
        if error.fatal() or error.code() in PERMANENT:
            raise failure(error, f"group {self.group!r} does not accept this member")

    def _on_assigned(self, member: Consumer, assigned: list[TopicPartition]) -> None:
        # The member itself reads nothing.
        for given in assigned:
            given.offset = OFFSET_END
        if self._subscription.clients.is_cooperative:
            member.incremental_assign(assigned)
        else:
            member.assign(assigned)
        if assigned:
            member.pause(assigned)
        for partition in _partitions(assigned):
            if not self._stop.is_set():
                self._start_runner(partition, in_group=True)

    def _on_revoked(self, member: Consumer, revoked: list[TopicPartition]) -> None:
        self._stop_runners(
            _partitions(revoked), then=lambda: self._report_offsets(member, asynchronous=False)
        )
        self._check_topics_at = 0.0  # The topic may be gone.
        self._unassign(member, revoked)

    def _on_lost(self, member: Consumer, lost: list[TopicPartition]) -> None:
        """Other members have them by now, and do what is not committed."""
        self._stop_runners(_partitions(lost))
        self._unassign(member, lost)

    def _unassign(self, member: Consumer, partitions: list[TopicPartition]) -> None:
        if self._subscription.clients.is_cooperative:
            member.incremental_unassign(partitions)
        else:
            member.unassign()

    def _report_offsets(self, member: Consumer, *, asynchronous: bool) -> None:
        """Commits the positions to the group, for tools that show its lag."""
        moved = [each for each in self._runners.values() if each.position > each.reported]
        offsets = [TopicPartition(*each.partition, each.position) for each in moved]
        if offsets:
            with suppress(KafkaException):
                member.commit(offsets=offsets, asynchronous=True)
                if not asynchronous:
                    # Nothing depends on it, so a broker that is away must not delay the end.
                    member.committed(offsets, timeout=COMMIT_SECONDS)
            for each, offset in zip(moved, offsets, strict=True):
                each.reported = offset.offset

    def _check_topics(self) -> None:
        """A topic that is gone, or was made again, is a fault even if no record comes."""
        for topic in self._subscription.topics:
            try:
                if self._is_gone(topic):
                    raise HoldfastError(self._gone_text(topic))
                topic_id = self._subscription.brokers.topic_id(topic)
            except StoreUnavailable:
                continue  # The next check will tell.
            for each in list(self._runners.values()):
                if each.partition.topic == topic and each.source.is_other(topic_id):
                    each.source.fault = HoldfastError(
                        f"topic {topic!r} was deleted and made again while it was read, up to "
                        f"offset {each.position} of partition {each.partition.number}; holdfast "
                        f"reset {self.definition.name} begins again with the new one"
                    )

    def _is_gone(self, topic: str) -> bool:
        """Asks twice, because one broker may not know of a new topic yet."""
        first = Partition(topic, 0)
        if self._subscription.brokers.exists(first) or self._stop.wait(1.0):
            return False
        return not self._subscription.brokers.exists(first)

    def _gone_text(self, topic: str) -> str:
        reached = dict(self._last_positions)
        reached |= {each.partition: each.position for each in self._runners.values()}
        offsets = [
            f"offset {position} of partition {partition.number}"
            for partition, position in sorted(reached.items())
            if partition.topic == topic
        ]
        read = f"; it was read up to {', '.join(offsets)}" if offsets else ""
        return (
            f"topic {topic!r} is gone{read}. If it is made again, it is another one: holdfast "
            f"reset {self.definition.name} begins again with the new one"
        )

    # Runners

    def _start_runner(self, partition: Partition, *, in_group: bool) -> None:
        self._supervisor.add(self._new_runner(partition, in_group=in_group))

    def _new_runner(self, partition: Partition, *, in_group: bool) -> PartitionRunner:
        runner = PartitionRunner(
            self.definition, self._context, self._subscription, partition, in_group=in_group
        )
        self._runners[partition] = runner
        return runner

    def _renewed(self, runner: Worker) -> Worker:
        """Another runner for the partition of one that has faulted."""
        assert isinstance(runner, PartitionRunner)
        return self._new_runner(runner.partition, in_group=True)

    def _runner_ended(self, runner: Worker) -> None:
        """Keeps the first fault; the runners of other partitions go on."""
        if self._stop.is_set() or self._catches_up or runner.crashed:
            self._own_fault = self._own_fault or runner.fault
        self.crashed = self.crashed or runner.crashed

    def _parts(self) -> Sequence[Worker]:
        return list(self._runners.values())

    def _stop_runners(
        self, partitions: Iterable[Partition], *, then: Callable[[], None] | None = None
    ) -> None:
        """Stops runners when they have finished their batch; abandons those that are too slow."""
        own = [partition for partition in partitions if partition in self._runners]
        self._supervisor.remove([self._runners[partition] for partition in own], REVOKE_SECONDS)
        for partition in own:
            self._runners[partition].is_assigned = False
        if then is not None:
            then()
        for partition in own:
            self._last_positions[partition] = self._runners.pop(partition).position


def _partitions(given: Iterable[TopicPartition]) -> list[Partition]:
    return [Partition(each.topic, each.partition) for each in given]
