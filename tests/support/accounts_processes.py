"""Consumers and producers of accounts as real processes, which a test starts, kills and freezes."""

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.support import accounts_worker
from tests.support.accounts import History
from tests.support.worker_process import ChildProcess

QUERY_SECONDS = 30.0
BATCH_EVENTS = 100


class Consumer(ChildProcess):
    """`holdfast run` with both projections of accounts, as one member of their groups."""

    def __init__(
        self,
        url: str,
        *options: str,
        bootstrap: str,
        topic: str,
        settings: Mapping[str, Any],
        batch_events: int = BATCH_EVENTS,
        slow_seconds: float = 0.0,
        revoke_seconds: float | None = None,
        patience_seconds: float | None = None,
    ) -> None:
        super().__init__(
            ["holdfast", "run", "tests.support.accounts_worker:app", *options],
            {
                accounts_worker.URL: url,
                accounts_worker.BOOTSTRAP: bootstrap,
                accounts_worker.TOPIC: topic,
                accounts_worker.SETTINGS: json.dumps(dict(settings)),
                accounts_worker.BATCH_EVENTS: str(batch_events),
                accounts_worker.SLOW_SECONDS: str(slow_seconds),
                accounts_worker.REVOKE_SECONDS: str(revoke_seconds or ""),
                accounts_worker.PATIENCE_SECONDS: str(patience_seconds or ""),
            },
        )


class Producer(ChildProcess):
    """Produces a share of a history, as far as it is allowed to."""

    def __init__(
        self, *, bootstrap: str, topic: str, history: History, share: int, shares: int
    ) -> None:
        numbers = (history.events, history.accounts, share, shares)
        super().__init__(
            ["tests.support.accounts_producer", bootstrap, topic, *map(str, numbers)], {}
        )

    def allow(self, until: int) -> None:
        """It may go on up to this number of the history."""
        self._process.stdin.write(f"{until}\n".encode())
        self._process.stdin.flush()


def quick_settings(bootstrap: str) -> dict[str, Any]:
    """Settings of a consumer whose death is noticed as soon as the broker can."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    node = min(admin.list_topics(timeout=QUERY_SECONDS).brokers)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node))
    described = admin.describe_configs([resource])[resource].result(QUERY_SECONDS)
    least = int(described["group.min.session.timeout.ms"].value)
    return {"session.timeout.ms": max(2_000, least), "heartbeat.interval.ms": 250}
