"""The process that the Kafka tests kill: `holdfast run tests.support.accounts_worker:app`.

The environment says what it reads, where its rows are, and how it is to behave. Every signal of the
runtime, and every event that the log begins to handle, is a line on the standard output.
"""

import json
import os
import threading

from holdfast.kafka import group_leases as leases
from holdfast.kafka import group_worker as worker
from holdfast.runtime.signals import Signal
from tests.support.accounts import build_accounts_app
from tests.support.limits import small_batches
from tests.support.speech import die_with_parent, say

URL = "ACCOUNTS_URL"
BOOTSTRAP = "ACCOUNTS_BOOTSTRAP"
TOPIC = "ACCOUNTS_TOPIC"
SETTINGS = "ACCOUNTS_SETTINGS"
"""The client's settings, as JSON."""
BATCH_EVENTS = "ACCOUNTS_BATCH_EVENTS"
SLOW_SECONDS = "ACCOUNTS_SLOW_SECONDS"
"""Spent inside the log's transaction at every third event."""

REVOKE_SECONDS = "ACCOUNTS_REVOKE_SECONDS"
"""How long a partition that is taken away may finish what it has begun."""
PATIENCE_SECONDS = "ACCOUNTS_PATIENCE_SECONDS"
"""How long the group's choice waits for the one before to let go."""


def say_signal(signal: Signal) -> None:
    number = signal.feed.rpartition("[")[2].removesuffix("]")
    details = getattr(signal, "epoch", None) or getattr(signal, "position", None) or ""
    say(f"{type(signal).__name__} {signal.projection} {number} {details}")


if URL in os.environ:
    threading.Thread(target=die_with_parent, daemon=True).start()
    worker.REVOKE_SECONDS = float(os.environ[REVOKE_SECONDS] or worker.REVOKE_SECONDS)
    leases.LEASE_WAIT_SECONDS = float(os.environ[PATIENCE_SECONDS] or leases.LEASE_WAIT_SECONDS)
    app = build_accounts_app(
        os.environ[URL],
        bootstrap=os.environ[BOOTSTRAP],
        topic=os.environ[TOPIC],
        settings=json.loads(os.environ[SETTINGS]),
        slow_seconds=float(os.environ[SLOW_SECONDS]),
        on_handling=lambda event: say(f"Handling {event.stream} {event.version}"),
    )
    small_batches(app, int(os.environ[BATCH_EVENTS]))
    app.listen(say_signal)
    say("Loaded")
