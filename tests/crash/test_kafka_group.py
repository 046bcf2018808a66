"""Consumer processes share partitions as their group says, and take over from dead and frozen ones.

The group only says who works where. What makes a second process harmless is the epoch, which the
group's choice raises: the process that had the partition before can't commit any more.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from holdfast import App
from tests.conftest import MakeTopic
from tests.support.postgres import wait_until
from tests.world.app import STREAM_KINDS, reached
from tests.world.books import Books
from tests.world.checks import check_topic
from tests.world.gate import at_commit, waiting_for_lock
from tests.world.partitions import await_led, await_versions, epochs, leaders, read_partitions
from tests.world.process import WorkerProcess
from tests.world.tables import snapshot
from tests.world.topic import QUERY_SECONDS, group_of, quick_settings
from tests.world.wanted import Limits, Topic, Wanted

PARTITIONS = 8
ACCOUNTS = 40
COOPERATIVE, EAGER = "cooperative-sticky", "range"
GATE = 4712
PATIENCE_SECONDS = 1.0
"""How long the group's choice waits for the one before, unless a test says otherwise."""

both_strategies = pytest.mark.parametrize("strategy", [COOPERATIVE, EAGER])


class Bank:
    """A topic of accounts, and the consumers that a test starts on it."""

    def __init__(self, url: str, bootstrap: str, topic: str, started: ExitStack) -> None:
        self.url, self.books = url, Books(bootstrap, topic, ACCOUNTS)
        self._bootstrap, self._topic, self._started = bootstrap, topic, started
        self._settings = quick_settings(bootstrap)
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    @property
    def session_seconds(self) -> float:
        """After this time without a word the group takes a consumer for dead."""
        return float(self._settings["session.timeout.ms"]) / 1_000

    def start(
        self,
        count: int = 1,
        *,
        strategy: str = COOPERATIVE,
        revoke_seconds: float | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> list[WorkerProcess]:
        settings = {**self._settings, "partition.assignment.strategy": strategy}
        wanted = Wanted(
            self.url,
            STREAM_KINDS,
            reads=Topic(self._bootstrap, self._topic, settings),
            batch_events=100,
            limits=Limits(revoke_seconds=revoke_seconds, lease_wait_seconds=patience_seconds),
        )
        return [self._started.enter_context(WorkerProcess(wanted)) for _ in range(count)]

    def revokes(self, projection: str) -> bool:
        """Whether a second member is there, and waits for what the first one is to give up."""
        state, members = self._group(projection)
        return state == ConsumerGroupState.PREPARING_REBALANCING or (
            len(members) == 2 and sum(members) < PARTITIONS
        )

    def has_one_member(self, projection: str) -> bool:
        """Whether one member alone has all partitions, as the group sees it."""
        state, members = self._group(projection)
        return state == ConsumerGroupState.STABLE and members == [PARTITIONS]

    def _group(self, projection: str) -> tuple[ConsumerGroupState, list[int]]:
        """The group's state, and how many partitions each of its members has."""
        name = f"{group_of(self._topic)}.{projection}"
        group = self._admin.describe_consumer_groups([name])[name].result(QUERY_SECONDS)
        return group.state, [len(m.assignment.topic_partitions) for m in group.members]

    def await_led_by(self, *consumers: WorkerProcess) -> None:
        """Returns when these lead all partitions, each of them some."""
        pids = [consumer.pid for consumer in consumers]
        await_led(self.url, range(PARTITIONS), pids, repr(consumers))

    def await_all(self) -> None:
        """Returns when everything that was produced is applied, and right."""
        await_versions(self.url, self.books.versions)
        check_topic(self.url, self.books.versions)

    def lines_by(self, consumer: WorkerProcess) -> int:
        """How many lines of the log a process has written."""
        sql = f"SELECT count(*) FROM ledger WHERE process = {consumer.pid}"
        count: int = snapshot(self.url, lambda query: query(sql))[0][0]
        return count


@pytest.fixture
def bank(store_url: str, kafka_broker: str, kafka_topic: MakeTopic) -> Iterator[Bank]:
    with ExitStack() as started:
        yield open_bank(store_url, kafka_broker, kafka_topic, started)


@pytest.fixture
def sqlite_bank(sqlite_url: str, kafka_broker: str, kafka_topic: MakeTopic) -> Iterator[Bank]:
    with ExitStack() as started:
        yield open_bank(sqlite_url, kafka_broker, kafka_topic, started)


@pytest.fixture
def postgres_bank(postgres_url: str, kafka_broker: str, kafka_topic: MakeTopic) -> Iterator[Bank]:
    with ExitStack() as started:
        yield open_bank(postgres_url, kafka_broker, kafka_topic, started)


def open_bank(url: str, bootstrap: str, make_topic: MakeTopic, started: ExitStack) -> Bank:
    with App(url) as app:
        app.migrate()
    bank = Bank(url, bootstrap, make_topic(PARTITIONS), started)
    bank.books.add()
    assert len(bank.books.one_on_each()) == PARTITIONS
    return bank


@both_strategies
def test_two_share_the_partitions(sqlite_bank: Bank, strategy: str) -> None:
    share_and_take_over(sqlite_bank, strategy, processes=2)


@both_strategies
def test_four_share_the_partitions(postgres_bank: Bank, strategy: str) -> None:
    share_and_take_over(postgres_bank, strategy, processes=4)


def share_and_take_over(bank: Bank, strategy: str, *, processes: int) -> None:
    *rest, victim = bank.start(processes, strategy=strategy)
    bank.await_led_by(*rest, victim)
    bank.books.add(times=3)
    bank.await_all()
    assert all(bank.lines_by(consumer) for consumer in (*rest, victim))

    killed_at = time.monotonic()
    victim.kill()
    bank.books.add(times=3)
    bank.await_led_by(*rest)
    bank.await_all()
    print(f"taken over {time.monotonic() - killed_at:.2f} s after the kill")

    newcomer, *_ = bank.start(strategy=strategy)
    bank.await_led_by(*rest, newcomer)
    bank.books.add(times=3)
    bank.await_all()
    assert bank.lines_by(newcomer) > 0
    left_at = time.monotonic()
    assert newcomer.stop() == 0, newcomer
    bank.await_led_by(*rest)
    print(f"taken over {time.monotonic() - left_at:.2f} s after SIGTERM")
    bank.books.add()
    bank.await_all()


@both_strategies
def test_a_frozen_one_loses_its_partitions_and_is_fenced(bank: Bank, strategy: str) -> None:
    frozen, other = bank.start(2, strategy=strategy)
    bank.await_led_by(frozen, other)
    bank.books.add()
    bank.await_all()  # On SQLite, nobody can go on while one is frozen that writes just now.
    frozen.freeze()
    bank.books.add(times=3)
    is_overruled_and_fenced(bank, frozen, other)


def test_one_that_is_frozen_before_it_writes_is_fenced(bank: Bank, tmp_path: Path) -> None:
    """Though the other one has written nothing yet: the checkpoint is where it was."""
    frozen, other = bank.start(2)
    bank.await_led_by(frozen, other)
    bank.books.add()
    bank.await_all()
    hold = tmp_path / "hold"
    hold.write_text(f"{frozen.pid} {other.pid}")
    led = leaders(bank.url)["totals"]
    number = min(number for number, pid in led.items() if pid == frozen.pid)
    bank.books.add(bank.books.on(number)[:1], fold=str(hold))
    wait_until(reached(hold, frozen.pid).exists, 30, f"it to add: {frozen!r}")
    await_versions(bank.url, bank.books.versions, projections=["ledger"])
    frozen.freeze()
    wait_until(reached(hold, other.pid).exists, 60, f"the other one to add: {other!r}")

    before = position(bank, "totals", number)
    # Fenced where it can still write; elsewhere its connection is gone.
    ends = [f"{signal} totals {number} " for signal in ("LeaseLost", "PollFailed", "Committed")]
    said = sum(map(frozen.times_said, ends))
    hold.write_text(f"{other.pid}")
    frozen.wake()
    wait_until(lambda: sum(map(frozen.times_said, ends)) > said, 60, f"its end: {frozen!r}")
    assert position(bank, "totals", number) == before
    hold.unlink()
    bank.await_all()


def test_one_that_is_frozen_inside_a_transaction_is_fenced(
    postgres_bank: Bank, tmp_path: Path
) -> None:
    bank, hold = postgres_bank, tmp_path / "hold"
    frozen, other = bank.start(2)
    bank.await_led_by(frozen, other)
    bank.await_all()
    hold.touch()
    mine = bank.books.on(*led_by(bank, frozen))
    bank.books.add(mine[:1], hold=str(hold))
    wait_until(reached(hold, frozen.pid).exists, 30, f"{frozen!r} to be inside")
    frozen.freeze()
    hold.unlink()
    bank.books.add(times=3)
    is_overruled_and_fenced(bank, frozen, other)


def test_one_that_is_frozen_inside_its_commit_is_fenced(postgres_bank: Bank) -> None:
    """Its transaction holds the checkpoint: who takes over has to end it first."""
    bank = postgres_bank
    frozen, other = bank.start(2)
    bank.await_led_by(frozen, other)
    bank.await_all()
    with psycopg.connect(bank.url, autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(%s)", (GATE,))
        wait = f"pg_advisory_xact_lock_shared({GATE})"
        at_commit(bank.url, f"CASE WHEN new.projection = 'ledger' THEN {wait} END")
        mine = bank.books.on(*led_by(bank, frozen))
        bank.books.add(mine[:1])
        frozen.wait_until_said(f"Handling {mine[0]} {bank.books.versions[mine[0]]}")
        wait_until(lambda: len(waiting_for_lock(gate)) == 1, 30, f"its commit: {frozen!r}")
        frozen.freeze()
        gate.execute(
            "CREATE OR REPLACE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RETURN NULL; END $$"
        )
        bank.books.add(times=3)
        is_overruled_and_fenced(bank, frozen, other)


def test_one_that_was_late_finishes_what_it_has_begun(postgres_bank: Bank, tmp_path: Path) -> None:
    """It is out of its group, and its successor waits a while before it goes ahead."""
    bank, hold = postgres_bank, tmp_path / "hold"
    late, other = bank.start(2, patience_seconds=60.0)
    bank.await_led_by(late, other)
    bank.books.add()
    bank.await_all()
    hold.touch()
    stream = bank.books.on(*led_by(bank, late))[0]
    bank.books.add([stream], hold=str(hold))
    wait_until(reached(hold, late.pid).exists, 30, f"{late!r} to be inside")
    late.freeze()
    wait_until(lambda: bank.has_one_member("ledger"), 60, f"the group: {other!r}")
    time.sleep(2 * PATIENCE_SECONDS)  # That nothing happens can't be awaited.
    hold.unlink()
    late.wake()
    bank.await_all()
    assert writers(bank, bank.books.of([stream])) == {late.pid}
    bank.await_led_by(late, other)


def is_overruled_and_fenced(bank: Bank, frozen: WorkerProcess, other: WorkerProcess) -> None:
    """The other one goes on; the frozen one wakes, changes nothing, and takes part again."""
    frozen_at = time.monotonic()
    bank.await_led_by(other)
    bank.await_all()
    print(f"overruled after {time.monotonic() - frozen_at:.2f} s")
    written = bank.lines_by(frozen)
    frozen.wake()
    bank.await_led_by(frozen, other)
    check_topic(bank.url, bank.books.versions)
    assert bank.lines_by(frozen) == written
    bank.books.add(times=3)
    bank.await_all()
    assert bank.lines_by(frozen) > written
    assert frozen.stop() == 0, frozen
    bank.await_led_by(other)


@pytest.mark.parametrize("way", ["hold", "fail"])
def test_a_handler_that_takes_long_holds_up_nobody_else(
    postgres_bank: Bank, tmp_path: Path, way: str
) -> None:
    """Longer than the session: it sleeps, or it fails and waits to be tried again."""
    bank = postgres_bank
    consumers = bank.start(2)
    bank.await_led_by(*consumers)
    bank.await_all()
    before, obstacle = epochs(bank.url), tmp_path / "obstacle"
    obstacle.touch()
    stream = bank.books.streams[0]
    others = [each for each in bank.books.streams if each not in neighbours(bank, stream)]
    what: dict[str, Any] = {way: str(obstacle)}
    bank.books.add([stream], **what)
    paths = [reached(obstacle, consumer.pid) for consumer in consumers]
    wait_until(lambda: any(path.exists() for path in paths), 30, f"the handler: {consumers}")

    until = time.monotonic() + 2.5 * bank.session_seconds
    while time.monotonic() < until:
        bank.books.add(others)
        await_versions(bank.url, bank.books.of(others))
    assert epochs(bank.url) == before
    obstacle.unlink()
    bank.await_all()
    assert epochs(bank.url) == before


def position(bank: Bank, projection: str, number: int) -> int:
    """How far a projection is on a partition."""
    (found,) = (
        p for p in read_partitions(bank.url) if (p.projection, p.number) == (projection, number)
    )
    return found.position


def led_by(bank: Bank, consumer: WorkerProcess) -> list[int]:
    """The partitions of the log that a process leads."""
    return [number for number, pid in leaders(bank.url)["ledger"].items() if pid == consumer.pid]


def neighbours(bank: Bank, stream: str) -> list[str]:
    """The accounts on the same partition."""
    return bank.books.on(bank.books.partitions[stream])


@both_strategies
def test_a_revoked_partition_finishes_what_it_has_begun(
    postgres_bank: Bank, tmp_path: Path, strategy: str
) -> None:
    bank, hold = postgres_bank, tmp_path / "hold"
    (first,) = bank.start(strategy=strategy)
    bank.await_led_by(first)
    bank.await_all()
    held = hold_everywhere(bank, first, hold)
    (second,) = bank.start(strategy=strategy)
    wait_until(lambda: bank.revokes("ledger"), 60, f"a rebalance: {second!r}")
    time.sleep(2 * PATIENCE_SECONDS)  # That nothing happens can't be awaited.
    assert set(leaders(bank.url)["ledger"].values()) == {first.pid}
    hold.unlink()
    bank.await_led_by(first, second)
    bank.await_all()
    assert writers(bank, held) == {first.pid}


@both_strategies
def test_a_revoked_partition_that_does_not_finish_is_undone(
    postgres_bank: Bank, tmp_path: Path, strategy: str
) -> None:
    """Its handler hangs, and another process applies the event: one of them commits it."""
    bank, hold = postgres_bank, tmp_path / "hold"
    (first,) = bank.start(strategy=strategy, revoke_seconds=0.5)
    bank.await_led_by(first)
    bank.await_all()
    held = hold_everywhere(bank, first, hold)
    (second,) = bank.start(strategy=strategy)
    wait_until(lambda: bool(led_by(bank, second)), 60, f"it to take over: {second!r}")
    hold.unlink()
    bank.await_led_by(first, second)
    bank.await_all()
    assert second.pid in writers(bank, held)
    assert [consumer.stop() for consumer in (first, second)] == [0, 0], (first, second)


def hold_everywhere(bank: Bank, consumer: WorkerProcess, hold: Path) -> dict[str, int]:
    """Has the log stop in the middle of a batch on each partition; returns where it did."""
    hold.touch()
    streams = bank.books.one_on_each()
    bank.books.add()
    bank.books.add(streams, hold=str(hold))
    held = bank.books.of(streams)
    bank.books.add()
    wait_until(
        lambda: all(consumer.said(f"Handling {s} {v}") for s, v in held.items()),
        60,
        f"handlers on all partitions: {consumer!r}",
    )
    return held


def writers(bank: Bank, held: dict[str, int]) -> set[int]:
    """The processes that have written these events' lines to the log."""
    rows = snapshot(bank.url, lambda query: query("SELECT stream, version, process FROM ledger"))
    return {process for stream, version, process in rows if held.get(stream) == version}
