"""holdfast keeps read models exactly right: projections for event-sourced Python."""

from holdfast.app import App, Running
from holdfast.core.codec import EventTypes
from holdfast.core.errors import (
    AppendError,
    ConcurrencyError,
    ConfigError,
    Fenced,
    HoldfastError,
    PayloadError,
    ProjectionFaulted,
    SchemaError,
    StoreConflict,
    StoreUnavailable,
    WaitTimeout,
)
from holdfast.core.event import Appended, Event, NewEvent
from holdfast.core.policy import Backoff, Poll
from holdfast.core.projection import DELETE, Projection, TableProjection, Tx, on
from holdfast.core.status import LastError, ProjectionStatus
from holdfast.sql.journal import Journal

__all__ = [
    "DELETE",
    "App",
    "AppendError",
    "Appended",
    "Backoff",
    "ConcurrencyError",
    "ConfigError",
    "Event",
    "EventTypes",
    "Fenced",
    "HoldfastError",
    "Journal",
    "LastError",
    "NewEvent",
    "PayloadError",
    "Poll",
    "Projection",
    "ProjectionFaulted",
    "ProjectionStatus",
    "Running",
    "SchemaError",
    "StoreConflict",
    "StoreUnavailable",
    "TableProjection",
    "Tx",
    "WaitTimeout",
    "on",
]
