"""What a test wants of a worker: one value, which reaches the process as one variable."""

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tests.world.app import PROJECTIONS, Name

VARIABLE = "HOLDFAST_TEST_WANTED"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and the settings of the clients that use it."""

    bootstrap: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Before or after the commit of the n-th transaction in which a statement was run."""

    when: Literal["before", "after"]
    statement: str
    number: int

    def __str__(self) -> str:
        return f"{self.when} {self.statement} {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the runtime that are module constants; None leaves one as it is."""

    lease_seconds: float | None = None
    """Of the outbox's claims."""
    bundle_lanes: int | None = None
    """Maximum of lanes that have a transaction in common."""
    backfill_events: int | None = None
    revoke_seconds: float | None = None
    """How long a partition that is taken away may finish what it has begun."""
    lease_wait_seconds: float | None = None
    """How long the group's choice waits for the process before to let go."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The app of a worker, and how it behaves. A field that is not given changes nothing."""

    url: str
    projections: tuple[Name, ...] = PROJECTIONS
    reads: Topic | None = None
    """The projections read this topic, not the journal."""
    publishes: Topic | None = None
    """The worker has no projection of ours: it publishes the journal to this topic."""
    concurrency: int | None = None
    """Delivers from the outbox, with this number of executors."""
    shards: int = 1
    writes: bool = False
    """The ledger does not wait for its statements."""
    batch_events: int | None = None
    """A small number makes many transactions."""
    drain_events: int | None = None
    slow_seconds: float = 0.0
    """Spent after the work of every third event."""
    random_seconds: float = 0.0
    """Spent at most after the work of every event."""
    max_failures: int | None = None
    """When the store is away; None never gives up."""
    spoilt: str | None = None
    """The folder of `Spoilt`."""
    is_patient: bool = False
    """The policy is that of the outbox, with its waits cut short."""
    limits: Limits = Limits()
    dies: Step | None = None
    """At which transaction the process ends."""
    trace: str | None = None
    """A file that gets a line for every claim, and when a handler begins and ends."""
    spare_bytes: int | None = None
    """How much more memory the process may take, from when it is loaded."""

    def to_environment(self) -> dict[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}


def wanted_here() -> Wanted | None:
    """What a test wants of this process, if it was started by one."""
    given = os.environ.get(VARIABLE)
    return msgspec.json.decode(given, type=Wanted) if given else None
