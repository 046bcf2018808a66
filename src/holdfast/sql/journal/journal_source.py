"""The journal as a source of events."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.ranges import EventRange
from holdfast.runtime.store.source import Chunk
from holdfast.sql.store.session import SqlSession


class JournalSource:
    """The journal as a feed, read on a runner's connection."""

    def __init__(self, session: SqlSession, *, reads_ahead: bool = False) -> None:
        """`reads_ahead`: the server looks for the next events while these are applied."""
        self._session, self._database = session, session.database
        self.reads_ahead = reads_ahead
        self._heard = self._database.bell.rings

    def read(self, after: int, limit: int) -> Chunk:
        self._heard = self._database.bell.rings
        connection = self._session.connection
        chunk = self._database.settled(connection, after, limit)
        if self.reads_ahead and 1 < limit == len(chunk.events):
            self._database.ask(connection, chunk.events[-1].position, limit)
        return chunk

    def extent(self, after: int, limit: int) -> EventRange:
        self._heard = self._database.bell.rings
        return self._database.extent(self._session.connection, after, limit)

    def head(self) -> int:
        return int(self._session.connection.run("head")[0][0])

    def check(self, checkpoint: Checkpoint) -> Checkpoint:
        head = self.head()
        if checkpoint.position > head:
            raise HoldfastError(
                f"it has come to position {checkpoint.position}, and feed {checkpoint.feed!r} ends "
                f"at {head}: has the feed been cut, or restored from an older copy? What was "
                f"appended since would be passed over; holdfast reset {checkpoint.projection} "
                "begins again"
            )
        return checkpoint

    def assure(self) -> None:
        """The journal is always the same."""

    def take_in(self) -> None:
        """Waits for what it has asked for."""
        if not self._session.is_resting:
            self._database.take_in(self._session.connection)

    def forget(self) -> None:
        if not self._session.is_resting:
            self._database.forget(self._session.connection)

    def wait(self, timeout_seconds: float) -> bool:
        has_rung = self._database.bell.wait(self._heard, timeout_seconds)
        self._heard = self._database.bell.rings
        return has_rung
