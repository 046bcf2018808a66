"""Every error that holdfast raises on purpose.

HoldfastError
├── ConfigError            the code or the settings are wrong; nothing was started
├── SchemaError            the database's tables don't fit this code
├── AppendError            an append was refused; nothing was written
│   └── ConcurrencyError   the stream is not at the expected version
├── PayloadError           a payload can't be encoded or decoded
├── StoreUnavailable       the database is away, full or refuses work
│   └── StoreConflict      a deadlock or serialisation failure: the same work may succeed now
├── Fenced                 another runner has taken over; this one changed nothing
├── ProjectionFaulted      a projection has stopped at an event
└── WaitTimeout            the projection did not get there in time

Control flow, which ends inside of holdfast:

HoldfastError
├── LayoutChanged            a projection has other shards by now than its runner thinks
└── ProjectionPaused             the projection is paused, and there is nobody to wait for its end

Exception
├── Revised                an operator has changed something: look again
├── ShardRequested                  another process has asked for the shard
├── RolledBack             the database has rolled the transaction back
└── TransactionEnded       a handler has ended the transaction
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of all errors that holdfast raises on purpose."""


class ConfigError(HoldfastError):
    """The code or the settings are wrong; nothing was started or changed."""


class SchemaError(HoldfastError):
    """The database's tables don't fit this code; nothing was changed."""


class AppendError(HoldfastError):
    """An append was refused; nothing was written."""


class ConcurrencyError(AppendError):
    """The stream is not at the version that the append expected."""

    def __init__(self, stream: str, *, expected: int, actual: int) -> None:
        self.stream, self.expected, self.actual = stream, expected, actual
        super().__init__(
            f"stream {stream!r} is at version {actual}, the append expected {expected}; "
            "read the stream again, decide again, then append"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (_concurrency_error, (self.stream, self.expected, self.actual))


def _concurrency_error(stream: str, expected: int, actual: int) -> ConcurrencyError:
    return ConcurrencyError(stream, expected=expected, actual=actual)


class PayloadError(HoldfastError):
    """A payload can't be encoded or decoded; the message names the event and the path."""


class StoreUnavailable(HoldfastError):
    """The database is away, full, or refuses work. No event is to blame.

    `connection_lost` tells a cut connection from a full disk or a lock: an event whose handler
    cuts the connection again and again is to blame after all.
    """

    def __init__(self, message: str, *, connection_lost: bool = False) -> None:
        super().__init__(message)
        self.connection_lost = connection_lost


class StoreConflict(StoreUnavailable):
    """A deadlock or a serialisation failure: the same work may succeed when tried again."""


class Fenced(HoldfastError):
    """Another runner has taken over this projection; this one changed nothing."""


class ProjectionFaulted(HoldfastError):
    """A projection has stopped; everything before the event that stopped it is committed."""


class WaitTimeout(HoldfastError):
    """The projection did not reach the position in time."""


class TransactionEnded(Exception):
    """A handler has ended the transaction: its rows may be in without the checkpoint."""


class RolledBack(Exception):
    """The database has rolled the whole transaction back; nothing of it is in."""


class Revised(Exception):
    """A person has changed something about the projection: look again. Nothing was written."""


class LayoutChanged(HoldfastError):
    """A projection has other shards by now than its runner thinks."""


class ProjectionPaused(HoldfastError):
    """The projection is paused, and there is nobody to wait for its end."""


class ShardRequested(Exception):
    """Another process has asked for the shard, and has fewer."""
