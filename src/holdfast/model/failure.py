"""A failure, as a policy gets it, and whether its error is transient."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.errors import StoreUnavailable
from holdfast.model.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed attempt at one event.

    `attempt` is 1 for the first. Where the payload can't be decoded, `event.data` holds its plain
    JSON values.
    """

    event: Event[Any]
    error: BaseException
    attempt: int
    position: int
    projection: str
    lane: str
    first_failed_at: datetime
    failed_at: datetime

    @property
    def age_seconds(self) -> float:
        """How long ago this event failed first."""
        return (self.failed_at - self.first_failed_at).total_seconds()


class ProcessDied(Exception):
    """The process died while it worked on this event alone, `deaths` times."""

    def __init__(self, deaths: int) -> None:
        super().__init__("the process ended while it worked on this event, and no other")
        self.deaths = deaths


class WorkerLost(Exception):
    """The worker that tried this event died, or did not renew its claim in time."""


TRANSIENT: tuple[type[BaseException], ...] = (
    ConnectionError,
    TimeoutError,
    InterruptedError,
    StoreUnavailable,
)

# Errors of a network that is away, for which Python has no class.
_NUMBERS = frozenset((errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH))

# Libraries that may not be installed, by the names of their base classes.
_NAMES = frozenset(
    (
        "aiohttp.client_exceptions.ClientConnectionError",
        "botocore.exceptions.ConnectionClosedError",
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.ReadTimeoutError",
        "httpcore.NetworkError",
        "httpcore.RemoteProtocolError",
        "httpcore.TimeoutException",
        "httpx.NetworkError",
        "httpx.RemoteProtocolError",
        "httpx.TimeoutException",
        # Without an SQL state: the connection was lost, or never made.
        "psycopg.OperationalError",
        "psycopg2.OperationalError",
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "sqlalchemy.exc.TimeoutError",
        "urllib3.exceptions.NewConnectionError",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.TimeoutError",
    )
)

# Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html
_STATES = ("08", "40", "53", "55P03", "57P", "57014", "58")

# Result codes of https://www.sqlite.org/rescode.html: BUSY, LOCKED and IOERR.
_CODES = frozenset((5, 6, 10))


def is_transient(error: BaseException) -> bool:
    """Whether an error of a network or a database is likely to pass by itself.

    Looks through wrappers, such as SQLAlchemy's and Django's, at the driver's error: a lost
    connection, a time-out, a deadlock, a full connection table. A group is transient if all its
    errors are. HTTP answers and gRPC statuses are not looked at: the policy says whether a 503 is
    transient.
    """
    return any(map(_is_transient, _causes(error)))


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_transient, error.exceptions))
    if isinstance(error, TRANSIENT):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return state.startswith(_STATES)
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in _CODES
    names = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    return not _NAMES.isdisjoint(names)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from: SQLAlchemy says `orig`, urllib `reason`."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        named = (getattr(error, name, None) for name in ("orig", "reason"))
        error = next((e for e in named if isinstance(e, BaseException)), error.__cause__)
