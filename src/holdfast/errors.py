"""Every error that holdfast raises on purpose.

HoldfastError
├── ConfigError            the code or the settings are wrong; nothing was started
├── SchemaError            the database's tables don't fit this code
├── AppendError            an append was refused; nothing was written
│   └── ConcurrencyError   the stream is not at the expected version
├── PayloadError           a payload can't be encoded or decoded
├── StoreUnavailable       the database is away, full, or refuses work
│   └── StoreConflict      a deadlock or serialisation failure: the same work may succeed now
├── Fenced                 another runner has taken over; nothing was changed
├── ProjectionFaulted      a projection has stopped at an event
└── WaitTimeout            the projection did not reach the position in time

Control flow between the parts of holdfast:

HoldfastError
├── LayoutChanged          the projection's number of shards has changed
└── ProjectionPaused       the projection is paused, and a catch-up does not wait for its end
Exception
├── Revised                an operator has changed the projection: read its state again
├── ShardRequested         another process has asked for the shard
├── RolledBack             the database has rolled the transaction back
└── TransactionEnded       a handler has ended the transaction

Modules with errors of their own: model/failure, model/foreign_feed, webhook, kafka and the runtime.
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

    `connection_lost`: the connection was cut. If the same event's handler cuts it repeatedly, the
    event is to blame after all.
    """

    def __init__(self, message: str, *, connection_lost: bool = False) -> None:
        super().__init__(message)
        self.connection_lost = connection_lost


class StoreConflict(StoreUnavailable):
    """A deadlock or a serialisation failure: the same work may succeed when it is tried again."""


class Fenced(HoldfastError):
    """Another runner has taken over the projection; nothing was changed."""


class ProjectionFaulted(HoldfastError):
    """A projection has stopped; everything before the event that stopped it is committed."""


class WaitTimeout(HoldfastError):
    """The projection did not reach the position in time."""


class TransactionEnded(Exception):
    """A handler has ended the transaction: its rows may be committed without the checkpoint."""


class RolledBack(Exception):
    """The database has rolled the whole transaction back; nothing of it is committed."""


class Revised(Exception):
    """An operator has changed the projection: read its state again. Nothing was written."""


class LayoutChanged(HoldfastError):
    """The projection's number of shards has changed since its runner started."""


class ProjectionPaused(HoldfastError):
    """The projection is paused, and a catch-up does not wait for its end."""


class ShardRequested(Exception):
    """Another process, which runs fewer shards, has asked for the shard."""
