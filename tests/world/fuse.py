"""Sessions in a test's own process that crash, lose their connection or stand still at a commit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from holdfast import App, StoreUnavailable
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.runtime.store.clock import Clock
from holdfast.sql.store.session import SqlSession

Blow = Literal["crash before", "crash after", "lost before", "lost after", "hold", "hold inside"]


class Crash(BaseException):
    """The process ends here, as far as the runner can tell."""


class Fuse:
    """Blows at one of the next commits of the sessions that it is built into.

    Before a commit it undoes the transaction, after it the commit stands and nobody is told. With
    `hold` the transaction does not even begin before it is let go; with `hold inside` it has begun
    and knows that its epoch is right.
    """

    def __init__(self) -> None:
        self._blow: Blow | None = None
        self._left = 0

    def open(self, url: str, *, clock: Clock | None = None) -> App:
        """An app whose runners work through fused sessions."""
        return FusedApp(url, self, clock=clock)

    def set(self, blow: Blow, commits: int, *, hold: Callable[[], None] = lambda: None) -> None:
        self._blow, self._left, self._hold = blow, commits, hold

    def clear(self) -> None:
        self._blow = None

    def at_begin(self) -> None:
        if self._blow == "hold" and self._is_due():
            self._hold()

    def at_checked(self) -> None:
        if self._blow == "hold inside" and self._is_due():
            self._hold()

    def at_commit(self, when: Literal["before", "after"]) -> None:
        if self._blow == f"crash {when}" and self._is_due():
            raise Crash
        if self._blow == f"lost {when}" and self._is_due():
            raise StoreUnavailable("the connection was cut", connection_lost=True)

    def _is_due(self) -> bool:
        self._left -= 1
        if self._left > 0:
            return False
        self._blow = None
        return True


class FusedApp(App):
    def __init__(self, url: str, fuse: Fuse, *, clock: Clock | None) -> None:
        super().__init__(url, clock=clock)
        self.fuse = fuse

    def _open_session(self) -> SqlSession:
        self._prepare()
        return FusedSession(self)


class FusedSession(SqlSession):
    """A real session, whose transactions may end in a way that the fuse decides."""

    def __init__(self, app: FusedApp) -> None:
        super().__init__(app._database)
        begin, fuse = self.connection.transaction, app.fuse

        @contextmanager
        def transaction() -> Iterator[None]:
            fuse.at_begin()
            with begin():
                yield
                fuse.at_commit("before")
            fuse.at_commit("after")

        self.connection.transaction = transaction  # type: ignore[method-assign]
        self._fuse = fuse

    def check_epoch(self, checkpoint: Checkpoint) -> None:
        super().check_epoch(checkpoint)
        self._fuse.at_checked()
