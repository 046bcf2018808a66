"""Every limit of batches, caches and waits of the runtime, in one object that tests replace."""

from __future__ import annotations

from dataclasses import dataclass

MB = 2**20


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """Limits of the runtime; names end with their unit.

    Reading. A read brings `chunk_events` at most: what is done with makes room that is still in the
    processor's cache. A transaction of handlers has at most `batch_events` and `batch_bytes` of
    payload, ends after the event that exceeds `batch_seconds`, and the next one is smaller if it
    took longer than `slow_batch_seconds`. Where events are folded no transaction is open meanwhile,
    and the more events become one row to write, the better: there the same limits are `fold_*`.
    After a death of the process at most `careful_events` go together.

    Lanes of `lookup_events` are looked up together among the closed ones.

    Handlers. A savepoint is for at most `group_events`.

    Rows. Between batches at most `cached_rows` and `cached_bytes` stay in memory; at most
    `changed_rows` and `changed_bytes` wait to be written. `least_rows` are never too many. At most
    `loaded_bytes` are loaded at a time, by the size of the rows so far; of the first ones,
    `first_loaded_rows`. Versions of at most `cached_streams` streams stay in memory.

    Parked events. A transaction tries at most `drain_events` of a lane. Between two batches a
    runner drains lanes for `drain_seconds`, or until an event comes, but for one attempt at least.
    A waiting lane re-checks by itself after `lane_recheck_seconds`, in case its wake-up was lost.

    Leases. A runner asks for a lease every `standby_seconds`. It leaves a shard to the process that
    asked for it for `handover_seconds`. While it waits for a retry, it looks for an operator's
    changes every `recheck_seconds`, and after a fault every `fault_check_seconds`. After
    `revisions_in_vain` transactions that operators have undone in a row, transactions lock the
    checkpoint first, for `lock_first_seconds`.

    Suspects. See failure/suspects.py.
    """

    chunk_events: int = 1_000
    batch_events: int = 10_000
    batch_bytes: int = 16 * MB
    batch_seconds: float = 1.0
    slow_batch_seconds: float = 2.0
    fold_events: int = 500_000
    fold_bytes: int = 64 * MB
    fold_seconds: float = 2.0
    slow_fold_seconds: float = 4.0
    range_events: int = 50_000
    careful_events: int = 10_000

    lookup_events: int = 128
    group_events: int = 128

    cached_rows: int = 50_000
    cached_bytes: int = 16 * MB
    changed_rows: int = 50_000
    changed_bytes: int = 48 * MB
    least_rows: int = 10
    loaded_bytes: int = 4 * MB
    first_loaded_rows: int = 100
    cached_streams: int = 50_000

    drain_events: int = 100
    drain_seconds: float = 0.05
    lane_recheck_seconds: float = 30.0

    standby_seconds: float = 0.25
    handover_seconds: float = 2.0
    recheck_seconds: float = 2.0
    fault_check_seconds: float = 1.0
    revisions_in_vain: int = 2
    lock_first_seconds: float = 5.0

    strikes: int = 3
    conflict_strikes: int = 8
    wary_events: int = 256
    unclean_ends: int = 2
    marked_deaths: int = 2
    single_events: int = 100


LIMITS = RuntimeLimits()
"""The limits in force, unless a test replaces them."""
