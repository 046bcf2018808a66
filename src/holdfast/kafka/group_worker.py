"""One projection on Kafka: a member of its group, and a runner for each partition it is assigned.

    join ──assigned──▶ a runner: lease, epoch, read from the checkpoint
     ▲                    │
     └──revoked: finish, commit, release◀──┘

The member only asks the group who does what, and always answers in time: handlers that take long,
retries that wait and a database that is away hold up their partitions, never the group. Offsets are
in the store; the group's are moved along for those who look at its lag.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import timedelta

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.kafka.errors import PERMANENT, error_of, failure
from holdfast.kafka.partition import Partition
from holdfast.kafka.partition_runner import PartitionRunner
from holdfast.kafka.subscription import Subscription
from holdfast.model.definition import Definition
from holdfast.runtime.run.worker import RunnerContext, Worker
from holdfast.runtime.signals import PollFailed
from holdfast.runtime.store.faults import MAX_MESSAGE_CHARACTERS, Fault, clean, fault_of

POLL_SECONDS = 0.25
"""How long the member waits for the group's word before it looks after its partitions."""

REPORT_SECONDS = 5.0
"""How often the group's offsets are moved along."""

COMMIT_SECONDS = 1.0
"""How long an end waits for the group to know its offsets."""

LEAVE_SECONDS = 5.0
"""How long it takes to leave a group at most. Everything else has ended before."""

LOOK_SECONDS = 30.0
"""How often it looks whether the topics are still the same."""

REVOKE_SECONDS = 30.0
"""How long a partition that is taken away may finish what it has begun."""


class KafkaWorker(Worker):
    """Runs one projection on the partitions that its group assigns to this process.

    With `catches_up` it runs on all partitions, in no group, until it has come to where they ended
    when it began; the leases say who works where another process is at work.
    """

    def __init__(
        self,
        definition: Definition,
        wiring: RunnerContext,
        subscription: Subscription,
        *,
        catches_up: bool,
    ) -> None:
        super().__init__(definition, wiring, None)
        self._subscription, self._catches_up = subscription, catches_up
        self._parts: dict[Partition, PartitionRunner] = {}
        self._reached: dict[Partition, int] = {}
        self._look_at = 0.0
        self._failures = 0
        self._has_ended = False

    def run(self) -> None:
        """Blocks until it ends; afterwards `fault` says if something is wrong."""
        try:
            while not (self._stop.is_set() or self._has_ended):
                try:
                    if self._catches_up:
                        self._catch_up()
                    else:
                        self._take_part()
                except StoreUnavailable as error:
                    self._back_off(error)
                except HoldfastError as error:
                    self._give_up(fault_of(error, self._wiring.clock))
        finally:
            self._end(list(self._parts))

    def stop(self) -> None:
        super().stop()
        for part in list(self._parts.values()):
            part.runner.stop()

    def abandon(self) -> None:
        for part in list(self._parts.values()):
            if part.thread.is_alive():
                part.runner.abandon()

    # Without a group

    def _catch_up(self) -> None:
        partitions = self._subscription.partitions()
        try:
            for partition in partitions:
                self._begin(partition, in_group=False)
        except BaseException:
            self._end(partitions)
            raise
        for partition in partitions:
            self._parts[partition].thread.join()
        self._has_ended = True

    # In a group

    def _take_part(self) -> None:
        self._subscription.partitions()  # Raises if a topic is missing.
        member = self._subscription.clients.member(self.group)
        try:
            member.subscribe(
                list(self._subscription.topics),
                on_assign=self._on_assigned,
                on_revoke=self._on_revoked,
                on_lost=self._on_lost,
            )
            self._follow(member)
        except KafkaException as error:
            raise failure(error_of(error), f"group {self.group!r} can't be joined") from error
        finally:
            self._end(list(self._parts), then=lambda: self._report(member, asynchronous=False))
            self._leave(member)

    def _leave(self, member: Consumer) -> None:
        """Leaves the group; without a word, if that takes long because the brokers are away."""
        leaving = threading.Thread(target=member.close, name="holdfast leaves", daemon=True)
        leaving.start()
        leaving.join(LEAVE_SECONDS)
        if leaving.is_alive():
            self.threads.append(leaving)

    @property
    def group(self) -> str:
        """The group's name: the members of one run the same projection."""
        return f"{self._subscription.group}.{self.definition.name}"

    def _follow(self, member: Consumer) -> None:
        report_at = 0.0
        self._failures = 0
        while not self._stop.is_set():
            if self._all_faulted():
                self._has_ended = True
                return
            message = member.poll(POLL_SECONDS)
            if message is not None and (error := message.error()) is not None:
                self._hear(error)
            now = self._wiring.clock.monotonic()
            if now >= report_at:
                self._report(member, asynchronous=True)
                report_at = now + REPORT_SECONDS
            if now >= self._look_at:
                self._look_at_topics()
                self._look_at = now + LOOK_SECONDS

    def _hear(self, error: KafkaError) -> None:
        """What the group says to its member, beside assignments."""
        if error.fatal() or error.code() in PERMANENT:
            raise failure(error, f"group {self.group!r} does not take this member")

    def _on_assigned(self, member: Consumer, assigned: list[TopicPartition]) -> None:
        # Nothing is read by the member itself.
        for own in assigned:
            own.offset = OFFSET_END
        if self._subscription.clients.is_cooperative:
            member.incremental_assign(assigned)
        else:
            member.assign(assigned)
        if assigned:
            member.pause(assigned)
        for partition in _partitions(assigned):
            if not self._stop.is_set():
                self._begin(partition, in_group=True)

    def _on_revoked(self, member: Consumer, revoked: list[TopicPartition]) -> None:
        self._end(_partitions(revoked), then=lambda: self._report(member, asynchronous=False))
        self._look_at = 0.0  # The topic may be gone.
        self._unassign(member, revoked)

    def _on_lost(self, member: Consumer, lost: list[TopicPartition]) -> None:
        """Others have them by now; whatever is not committed is theirs to do."""
        self._end(_partitions(lost))
        self._unassign(member, lost)

    def _unassign(self, member: Consumer, partitions: list[TopicPartition]) -> None:
        if self._subscription.clients.is_cooperative:
            member.incremental_unassign(partitions)
        else:
            member.unassign()

    def _report(self, member: Consumer, *, asynchronous: bool) -> None:
        """Moves the group's offsets along, for those who look at its lag."""
        moved = [part for part in self._parts.values() if part.position > part.reported]
        offsets = [TopicPartition(*part.partition, part.position) for part in moved]
        if offsets:
            with suppress(KafkaException):
                member.commit(offsets=offsets, asynchronous=True)
                if not asynchronous:
                    # Nobody depends on it: a broker that is away must not hold up the end.
                    member.committed(offsets, timeout=COMMIT_SECONDS)
            for part, offset in zip(moved, offsets, strict=True):
                part.reported = offset.offset

    def _look_at_topics(self) -> None:
        """A topic that is gone, or was made again, is a fault even where nothing is read."""
        for topic in self._subscription.topics:
            try:
                if self._is_gone(topic):
                    raise HoldfastError(self._gone(topic))
                topic_id = self._subscription.brokers.topic_id(topic)
            except StoreUnavailable:
                continue  # Another time.
            for part in list(self._parts.values()):
                if part.partition.topic == topic and part.source.is_other(topic_id):
                    part.source.fault = HoldfastError(
                        f"topic {topic!r} was deleted and made again while it was read, up to "
                        f"offset {part.position} of partition {part.partition.number}; holdfast "
                        f"reset {self.definition.name} begins again with the new one"
                    )

    def _is_gone(self, topic: str) -> bool:
        """One broker may not know of it yet: a second answer counts."""
        first = Partition(topic, 0)
        if self._subscription.brokers.exists(first) or self._stop.wait(1.0):
            return False
        return not self._subscription.brokers.exists(first)

    def _gone(self, topic: str) -> str:
        reached = {**self._reached, **{p.partition: p.position for p in self._parts.values()}}
        offsets = [
            f"offset {position} of partition {partition.number}"
            for partition, position in sorted(reached.items())
            if partition.topic == topic
        ]
        read = f"; it was read up to {', '.join(offsets)}" if offsets else ""
        return (
            f"topic {topic!r} is gone{read}. If it is made again, it is another one: holdfast "
            f"reset {self.definition.name} begins again with that"
        )

    # Partitions

    def _begin(self, partition: Partition, *, in_group: bool) -> None:
        part = PartitionRunner(
            self.definition,
            self._wiring,
            self._subscription,
            partition,
            in_group=in_group,
            ended=self._part_ended,
        )
        self._parts[partition] = part
        self.threads.append(part.thread)
        part.thread.start()

    def _part_ended(self, fault: Fault | None) -> None:
        """One partition's runner has ended; the others go on, whatever it has ended with."""
        self.fault = self.fault or fault

    def _end(
        self, partitions: Iterable[Partition], *, then: Callable[[], None] | None = None
    ) -> None:
        """Lets partitions finish what they have begun; one that does not is left to its fate."""
        ending = [self._parts[p] for p in partitions if p in self._parts]
        for part in ending:
            part.runner.stop()
        until = time.monotonic() + REVOKE_SECONDS
        for part in ending:
            part.thread.join(max(0.0, until - time.monotonic()))
            if part.thread.is_alive():
                part.runner.abandon()
            part.is_assigned = False
        if then is not None:
            then()
        for part in ending:
            self._parts.pop(part.partition, None)
            self._reached[part.partition] = part.position
        self.threads[:] = [thread for thread in self.threads if thread.is_alive()]

    def _all_faulted(self) -> bool:
        parts = list(self._parts.values())
        return bool(parts) and all(part.runner.fault is not None for part in parts)

    # Failing

    def _back_off(self, error: StoreUnavailable) -> None:
        self._failures += 1
        poll = self.definition.poll
        if poll.max_consecutive_failures and self._failures >= poll.max_consecutive_failures:
            self._give_up(fault_of(error, self._wiring.clock))
            return
        delay = poll.failure_backoff.delay(self._failures)
        text = self.definition.masked(str(error))
        self._emit(PollFailed(*self._names, self._failures, text, delay))
        self._note_failing(str(error), delay)
        self._stop.wait(delay)

    def _note_failing(self, text: str, delay_seconds: float) -> None:
        """Tells those who ask, if the store takes as much as that."""
        until = self._wiring.clock.now() + timedelta(seconds=delay_seconds)
        reason = clean(f"what it needs: {text}", MAX_MESSAGE_CHARACTERS)
        with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
            checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
            session.note_wait(checkpoint, until, reason, keep_mark=True)

    def _give_up(self, fault: Fault) -> None:
        """Ends with a fault that is no single partition's."""
        with suppress(HoldfastError), closing(self._wiring.open_session()) as session:
            checkpoint = session.open_checkpoint(self.definition.name, self._wiring.feed)
            session.record_fault(checkpoint, fault)
        self._has_ended = True
        self._end_with(fault)


def _partitions(given: Iterable[TopicPartition]) -> list[Partition]:
    return [Partition(partition.topic, partition.partition) for partition in given]
