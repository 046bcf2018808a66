"""A Kafka cluster that the client library itself plays, for tests that need no real one."""

from typing import Self

from confluent_kafka import Producer

BROKERS = 1
START_SECONDS = 30.0


class MockCluster:
    """A cluster inside this process, for as long as it is open.

    A topic comes to be when a client first asks for it, with 4 partitions: this cannot be chosen.
    It keeps everything in memory, knows no admin requests, and compacts and expires nothing.
    """

    def __init__(self) -> None:
        self._owner: Producer | None = Producer({"test.mock.num.brokers": BROKERS, "log_level": 0})
        brokers = self._owner.list_topics(timeout=START_SECONDS).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster. May be called again."""
        self._owner = None
