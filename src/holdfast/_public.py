"""The names that `import holdfast` offers, loaded together when the first of them is used."""

from holdfast.app import App
from holdfast.core.backoff import Backoff
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
from holdfast.core.failure import Failure, ProcessDied, WorkerLost
from holdfast.core.policy import (
    Breaker,
    Decision,
    Fatal,
    Limits,
    Park,
    Policy,
    Retry,
    RetryBudget,
    Skip,
)
from holdfast.core.poll import Poll
from holdfast.core.projection import DELETE, Projection, SqlProjection, TableProjection, Tx, on
from holdfast.core.queue import (
    Attempt,
    AuditRow,
    QueueChange,
    QueueCount,
    QueueItem,
    QueueSelection,
)
from holdfast.core.status import LastError, ProjectionStatus
from holdfast.core.transient import is_transient
from holdfast.running import Running
from holdfast.sql.explain import Reason
from holdfast.sql.journal import Journal
from holdfast.sql.outboxes import Outbox, OutboxReport, RelayStatus
from holdfast.sql.queue import Queue

__all__ = [
    "DELETE",
    "App",
    "AppendError",
    "Appended",
    "Attempt",
    "AuditRow",
    "Backoff",
    "Breaker",
    "ConcurrencyError",
    "ConfigError",
    "Decision",
    "Event",
    "EventTypes",
    "Failure",
    "Fatal",
    "Fenced",
    "HoldfastError",
    "Journal",
    "LastError",
    "Limits",
    "NewEvent",
    "Outbox",
    "OutboxReport",
    "Park",
    "PayloadError",
    "Policy",
    "Poll",
    "ProcessDied",
    "Projection",
    "ProjectionFaulted",
    "ProjectionStatus",
    "Queue",
    "QueueChange",
    "QueueCount",
    "QueueItem",
    "QueueSelection",
    "Reason",
    "RelayStatus",
    "Retry",
    "RetryBudget",
    "Running",
    "SchemaError",
    "Skip",
    "SqlProjection",
    "StoreConflict",
    "StoreUnavailable",
    "TableProjection",
    "Tx",
    "WaitTimeout",
    "WorkerLost",
    "is_transient",
    "on",
]
