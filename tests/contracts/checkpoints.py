"""What a store promises a runner: rows and checkpoint together, under the runner's epoch alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from holdfast.errors import Fenced
from holdfast.model.rows.row_type import table_of
from holdfast.runtime.store.checkpoint import Advance, Checkpoint
from holdfast.runtime.store.faults import Fault, stacktrace_of, text_of
from holdfast.runtime.store.session import Session
from holdfast.runtime.store.transaction import RowChanges
from tests.contracts.samples import concurrently, table_definition

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@dataclass
class Thing:
    """A row with a number."""

    id: str
    n: int = 0


THINGS = table_definition(Thing)
TABLE = table_of(Thing, name="things")


def in_steps(
    session: Session, checkpoint: Checkpoint, to: int, keys: Sequence[str | None] = ("a",)
) -> None:
    """Rows with these keys, and the checkpoint, in a transaction."""
    with session.transaction() as work:
        work.write_rows(TABLE, RowChanges([keys, [1] * len(keys)], [to] * len(keys)))
        work.advance(checkpoint, _to(to))


def at_once(
    session: Session, checkpoint: Checkpoint, to: int, keys: Sequence[str | None] = ("a",)
) -> None:
    """The same without a transaction that the caller sees."""
    rows = RowChanges([keys, [1] * len(keys)], [to] * len(keys))
    session.advance(checkpoint, _to(to), (TABLE, rows))


Apply = Callable[..., None]
each_way = pytest.mark.parametrize("apply", [in_steps, at_once])


class CheckpointContract:
    """Needs a fixture `open_session`: opens sessions on one empty, migrated store."""

    @pytest.fixture
    def open_session(self) -> Callable[[], Session]:
        raise NotImplementedError

    @pytest.fixture
    def session(self, open_session: Callable[[], Session]) -> Session:
        return open_session()

    @pytest.fixture
    def leading(self, session: Session) -> Checkpoint:
        """The checkpoint of a runner that has taken over and made its table."""
        checkpoint = session.take_over(session.open_checkpoint("things", "journal"))
        session.prepare(THINGS)
        return checkpoint

    def test_a_checkpoint_is_made_once(self, session: Session) -> None:
        first = session.open_checkpoint("things", "journal")
        assert first == Checkpoint(first.id, "things", "journal", 0, 0, "stopped", 0, 0)
        assert session.open_checkpoint("things", "journal") == first
        others = [session.open_checkpoint("things", "b"), session.open_checkpoint("Things", "b")]
        assert len({first.id, *(other.id for other in others)}) == 3

    def test_a_checkpoint_is_made_once_by_many(self, open_session: Callable[[], Session]) -> None:
        def make(_: int) -> Checkpoint:
            with closing(open_session()) as session:
                return session.open_checkpoint("things", "journal")

        assert len(set(concurrently(6, make))) == 1

    def test_taking_over_raises_the_epoch(self, session: Session) -> None:
        opened = session.open_checkpoint("things", "journal")
        first = session.take_over(opened)
        second = session.take_over(opened)
        assert opened.epoch < first.epoch < second.epoch
        assert (second.position, second.state) == (0, "running")
        assert session.open_checkpoint("things", "journal") == second

    def test_taking_over_at_once_gives_each_its_own_epoch(
        self, open_session: Callable[[], Session], session: Session
    ) -> None:
        opened = session.open_checkpoint("things", "journal")

        def take(_: int) -> int:
            with closing(open_session()) as own:
                return own.take_over(opened).epoch

        assert sorted(concurrently(6, take)) == list(range(opened.epoch + 1, opened.epoch + 7))

    def test_rows_and_checkpoint_go_on_together(
        self, session: Session, leading: Checkpoint
    ) -> None:
        with session.transaction() as work:
            work.write_rows(TABLE, RowChanges([["a"], [1]], [7]))
            moved = work.advance(leading, _to(7, events=3))
        assert (moved.position, moved.epoch, moved.events_processed) == (7, leading.epoch, 3)
        assert session.open_checkpoint("things", "journal") == moved
        with session.transaction() as work:
            moved = work.advance(moved, _to(12, events=2))
        assert (moved.position, moved.events_processed) == (12, 5)
        assert _rows(session) == {"a": (1, 7)}

    def test_rows_and_checkpoint_go_on_at_once(self, session: Session, leading: Checkpoint) -> None:
        rows = RowChanges([["a", "row-1"], [1, 2]], [6, 7])
        moved = session.advance(leading, _to(7, events=3), (TABLE, rows))
        assert (moved.position, moved.epoch, moved.events_processed) == (7, leading.epoch, 3)
        assert session.open_checkpoint("things", "journal") == moved
        moved = session.advance(moved, _to(12, events=2))
        assert session.open_checkpoint("things", "journal") == moved
        assert (moved.position, moved.events_processed) == (12, 5)
        moved = session.advance(moved, _to(13), (TABLE, RowChanges([["a"], [3]], [13])))
        assert _rows(session) == {"a": (3, 13), "row-1": (2, 7)}

    @each_way
    def test_an_older_epoch_is_fenced_and_its_rows_are_not_there(
        self,
        session: Session,
        open_session: Callable[[], Session],
        leading: Checkpoint,
        apply: Apply,
    ) -> None:
        successor = open_session().take_over(leading)
        with pytest.raises(Fenced, match="things"):
            apply(session, leading, 7)
        assert _rows(session) == {}
        assert session.open_checkpoint("things", "journal") == successor

    @each_way
    def test_a_wrong_position_is_fenced_and_its_rows_are_not_there(
        self, session: Session, leading: Checkpoint, apply: Apply
    ) -> None:
        with session.transaction() as work:
            moved = work.advance(leading, _to(7))
        with pytest.raises(Fenced):
            apply(session, leading, 9)
        assert _rows(session) == {}
        assert session.open_checkpoint("things", "journal") == moved

    @each_way
    def test_a_row_that_was_changed_later_fences_and_nothing_is_written(
        self, session: Session, leading: Checkpoint, apply: Apply
    ) -> None:
        with session.transaction() as work:
            work.write_rows(TABLE, RowChanges([["a"], [5]], [8]))
        with pytest.raises(Fenced, match="1 rows of table 'things'"):
            apply(session, leading, 7, ("row-1", "a", "row-2"))
        assert _rows(session) == {"a": (5, 8)}
        assert session.open_checkpoint("things", "journal") == leading
        apply(session, leading, 8)  # The session can be used as before.

    @each_way
    def test_a_refused_row_leaves_nothing(
        self, session: Session, leading: Checkpoint, apply: Apply
    ) -> None:
        with pytest.raises(Exception, match=r"(?i)null") as caught:
            apply(session, leading, 7, ("a", None))
        assert session.refused(caught.value)
        assert session.unavailable(caught.value) is None
        assert _rows(session) == {}
        assert session.open_checkpoint("things", "journal") == leading
        apply(session, leading, 7)

    @each_way
    def test_of_two_that_believe_to_lead_one_writes(
        self, open_session: Callable[[], Session], leading: Checkpoint, apply: Apply
    ) -> None:
        def work(number: int) -> bool:
            with closing(open_session()) as session:
                try:
                    apply(session, leading, 5, (f"row-{number}",))
                except Fenced:
                    return False
                return True

        outcomes = concurrently(4, work)
        assert sum(outcomes) == 1
        assert list(_rows(open_session())) == [f"row-{outcomes.index(True)}"]

    def test_what_raises_leaves_nothing(self, session: Session, leading: Checkpoint) -> None:
        def fail() -> None:
            with session.transaction() as work:
                work.write_rows(TABLE, RowChanges([["a"], [1]], [7]))
                work.advance(leading, _to(7))
                raise KeyError("after everything was written")

        with pytest.raises(KeyError):
            fail()
        assert _rows(session) == {}
        assert session.open_checkpoint("things", "journal") == leading
        with session.transaction() as work:  # The session can be used as before.
            work.advance(leading, _to(1))

    def test_a_failing_statement_leaves_nothing(
        self, session: Session, leading: Checkpoint
    ) -> None:
        def fail() -> None:
            with session.transaction() as work:
                work.write_rows(TABLE, RowChanges([["a"], [1]], [7]))
                work.advance(leading, _to(7))
                with work.handling() as tx:
                    tx.execute("INSERT INTO no_such_table VALUES (1)")

        with pytest.raises(Exception, match="no_such_table") as caught:
            fail()
        assert session.unavailable(caught.value) is None
        assert _rows(session) == {}
        assert session.open_checkpoint("things", "journal") == leading

    def test_a_handlers_work_is_in_the_transaction(
        self, session: Session, leading: Checkpoint
    ) -> None:
        with session.transaction() as work:
            with work.handling() as tx:
                tx.execute("INSERT INTO things (id, n, _position) VALUES ('a', 1, 1)")
                assert tx.fetch("SELECT id, n FROM things") == [("a", 1)]
                work.check_intact()
            work.advance(leading, _to(1))
        assert _rows(session) == {"a": (1, 1)}

    def test_the_epoch_can_be_checked(self, session: Session, leading: Checkpoint) -> None:
        session.check_epoch(leading)
        successor = session.take_over(leading)
        session.check_epoch(successor)
        with pytest.raises(Fenced):
            session.check_epoch(leading)

    def test_release_stops_its_own_epoch_alone(self, session: Session, leading: Checkpoint) -> None:
        successor = session.take_over(leading)
        session.release(leading)
        assert session.open_checkpoint("things", "journal") == successor
        session.release(successor)
        assert session.open_checkpoint("things", "journal").state == "stopped"

    def test_a_fault_is_recorded_for_its_own_epoch_alone(
        self, session: Session, leading: Checkpoint
    ) -> None:
        successor = session.take_over(leading)
        session.record_fault(leading, _fault("too late"))
        assert session.open_checkpoint("things", "journal") == successor
        session.record_fault(successor, _fault("in time"))
        assert session.open_checkpoint("things", "journal").state == "faulted"

    @pytest.mark.parametrize(
        "message", ["", "nul \0 inside", "lone \udc80 surrogate", "💡 'quoted'", "x" * 2**20]
    )
    def test_any_message_can_be_recorded(
        self, session: Session, leading: Checkpoint, message: str
    ) -> None:
        session.record_fault(leading, _fault(message))
        assert session.open_checkpoint("things", "journal").state == "faulted"

    def test_progress_ends_a_fault(self, session: Session, leading: Checkpoint) -> None:
        session.record_fault(leading, _fault("broken"))
        with session.transaction() as work:
            moved = work.advance(leading, _to(1))
        assert moved.state == "running"


def _to(position: int, *, events: int = 1) -> Advance:
    return Advance(
        position=position,
        events=events,
        last_event_id=str(uuid4()),
        last_event_type="Counted",
        at=NOW,
        events_per_second=12.5,
    )


def _fault(message: str) -> Fault:
    return Fault(
        error_type="ValueError",
        error_message=text_of(ValueError(message)),
        error_stacktrace=stacktrace_of(ValueError(message)),
        at=NOW,
        position=7,
        event_id=uuid4(),
        event_type="Counted",
    )


def _rows(session: Session) -> dict[str, tuple[int, int]]:
    keys = [("a",), *((f"row-{n}",) for n in range(4))]
    found = session.load_rows(TABLE, keys)
    return {key[0]: (values[1], position) for key, (values, position) in found.items()}
