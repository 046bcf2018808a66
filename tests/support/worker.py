"""The worker process that the crash tests kill: `holdfast run tests.support.worker:app`.

The environment says which database, and how the app is to behave. Every signal of the runtime, and
every event that the ledger begins to handle, is a line on the standard output.
"""

import os
import threading

from holdfast import Backoff, Poll
from holdfast.runtime.signals import Signal
from tests.support.limits import small_batches
from tests.support.speech import die_with_parent as die_with_parent
from tests.support.speech import say as say
from tests.support.worker_app import build_app

URL = "WORKER_URL"
SLOW_SECONDS = "WORKER_SLOW_SECONDS"
"""Spent inside the ledger's transaction at every third event."""
BATCH_EVENTS = "WORKER_BATCH_EVENTS"
"""A small number makes many transactions."""
WRITES = "WORKER_WRITES"
"""The ledger does not wait for its statements, and nor does anybody else."""
SHARDS = "WORKER_SHARDS"
"""Of the totals and the ledger."""
MAX_FAILURES = "WORKER_MAX_FAILURES"
"""When the store is away; 0 never gives up."""


def say_signal(signal: Signal) -> None:
    details = getattr(signal, "epoch", None) or getattr(signal, "position", None) or ""
    say(f"{type(signal).__name__} {signal.projection} {details}")


if URL in os.environ:
    threading.Thread(target=die_with_parent, daemon=True).start()
    app = build_app(
        os.environ[URL],
        writes=WRITES in os.environ,
        shards=int(os.environ.get(SHARDS, "1")),
        slow_seconds=float(os.environ.get(SLOW_SECONDS, "0")),
        poll=Poll(
            max_consecutive_failures=int(os.environ.get(MAX_FAILURES, "0")) or None,
            failure_backoff=Backoff(delay_seconds=0.05, max_delay_seconds=0.2),
        ),
        on_handling=lambda event: say(f"Handling {event.position}"),
    )
    if BATCH_EVENTS in os.environ:
        small_batches(app, int(os.environ[BATCH_EVENTS]))
    app.listen(say_signal)
    say("Loaded")
