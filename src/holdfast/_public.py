"""The public names of `import holdfast`, loaded together on first use of one of them."""

from holdfast.app import App
from holdfast.errors import (
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
from holdfast.model.backoff import Backoff
from holdfast.model.event import Appended, Event, NewEvent
from holdfast.model.event_types import EventTypes
from holdfast.model.failure import Failure, ProcessDied, WorkerLost, is_transient
from holdfast.model.policy import (
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
from holdfast.model.poll import Poll
from holdfast.model.projection import DELETE, Projection, SqlProjection, TableProjection, Tx, on
from holdfast.running import Running
from holdfast.runtime.status import LastError, ProjectionStatus
from holdfast.runtime.store.queue_items import (
    Attempt,
    AuditRow,
    QueueChange,
    QueueCount,
    QueueItem,
    QueueSelection,
)
from holdfast.sql.journal.journal import Journal
from holdfast.sql.operate.deliveries import RelayStatus
from holdfast.sql.operate.explain import Reason
from holdfast.sql.operate.forward import Forward
from holdfast.sql.operate.lag import Lag
from holdfast.sql.operate.outbox import Outbox, OutboxReport
from holdfast.sql.operate.queue import Queue
from holdfast.sql.operate.settings import Override, Setting

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
    "Forward",
    "HoldfastError",
    "Journal",
    "Lag",
    "LastError",
    "Limits",
    "NewEvent",
    "Outbox",
    "OutboxReport",
    "Override",
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
    "Setting",
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
