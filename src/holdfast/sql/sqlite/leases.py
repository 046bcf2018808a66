"""Leases on SQLite: a lock on a file beside the database."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.sql.forks import count
from holdfast.sql.sqlite.side_file import open_side_file


class FileLeases:
    """Leases that other processes see. The kernel frees them when their process dies."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._held: set[FileLease] = set()

    def acquire(self, checkpoint_id: int) -> FileLease | None:
        path = self._path(checkpoint_id)
        forks = count()
        was_there = path.exists()  # A release removes it.
        try:
            file = open_side_file(self._database, path)
        except OSError as error:
            raise StoreUnavailable(f"can't open the lease's file {path}: {error}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        # If the file was removed between opening and locking, the lock is worthless.
        if not _is(file, path):
            os.close(file)
            return None
        lease = FileLease(path, file, self._held, was_given_back=not was_there)
        self._held.add(lease)
        if count() != forks:  # A child may have inherited the file before it was in our list.
            lease.release()
            return None
        return lease

    def held(self, checkpoint_ids: Iterable[int]) -> set[int]:
        return {id_ for id_ in checkpoint_ids if _is_locked(self._path(id_))}

    def depose(self, checkpoint_id: int) -> None:
        """The holder keeps its lock on a deleted file; the next one creates another file."""
        self._path(checkpoint_id).unlink(missing_ok=True)

    def close(self) -> None:
        for lease in list(self._held):
            lease.release()

    def abandon(self) -> None:
        """In the child of a fork: the leases are the parent's."""
        for lease in list(self._held):
            lease.leave()

    def _path(self, checkpoint_id: int) -> Path:
        return self._database.with_name(f"{self._database.name}-lease-{checkpoint_id}")


class FileLease:
    """An open file with a lock on it, while the file is still the one at its path."""

    def __init__(
        self, path: Path, file: int, among: set[FileLease], *, was_given_back: bool
    ) -> None:
        self._path, self._file, self._among = path, file, among
        self.was_given_back = was_given_back
        self._released = False

    @property
    def held(self) -> bool:
        return not self._released and _is(self._file, self._path)

    def release(self) -> None:
        if self._released:
            return
        if self.held:
            self._path.unlink(missing_ok=True)
        # Closing is not enough: a child that was just forked may have the file open too.
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self.leave()

    def leave(self) -> None:
        """Closes the file. The lock ends with the last process that has it open."""
        self._released = True
        self._among.discard(self)
        os.close(self._file)


class LocalLeases:
    """Leases of a database in memory, which no other process can reach."""

    def __init__(self) -> None:
        self._held: dict[int, LocalLease] = {}
        self._lock = threading.Lock()

    def acquire(self, checkpoint_id: int) -> LocalLease | None:
        with self._lock:
            if checkpoint_id in self._held:
                return None
            lease = self._held[checkpoint_id] = LocalLease(checkpoint_id, self._held)
            return lease

    def held(self, checkpoint_ids: Iterable[int]) -> set[int]:
        return self._held.keys() & set(checkpoint_ids)

    def depose(self, checkpoint_id: int) -> None:
        self._held.pop(checkpoint_id, None)

    def close(self) -> None:
        self._held.clear()

    def abandon(self) -> None:
        self._held.clear()


class LocalLease:
    """An entry in the table of leases, while it is still there."""

    was_given_back = True  # Leases end with the process.

    def __init__(self, checkpoint_id: int, among: dict[int, LocalLease]) -> None:
        self._id, self._among = checkpoint_id, among

    @property
    def held(self) -> bool:
        return self._among.get(self._id) is self

    def release(self) -> None:
        if self.held:
            del self._among[self._id]


def _is(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two processes that ask don't see each other.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        fcntl.flock(file, fcntl.LOCK_UN)  # As above: a child may have it open.
        return False
    finally:
        os.close(file)
