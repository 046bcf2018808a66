"""What a test itself produces: each account's next event, and where it goes."""

from collections import Counter
from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.world.topic import account, record

FLUSH_SECONDS = 60.0


class Books:
    """Accounts on a topic, their last versions, and the partitions on which they are."""

    def __init__(self, bootstrap: str, topic: str, accounts: int, **settings: str) -> None:
        self.topic = topic
        self.streams = [account(number) for number in range(accounts)]
        self.versions: Counter[str] = Counter()
        self.partitions: dict[str, int] = {}
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings}
        )

    @property
    def events(self) -> int:
        """How many there are of all accounts."""
        return self.versions.total()

    def add(self, streams: Iterable[str] | None = None, *, times: int = 1, **settings: str) -> None:
        """The next events of these accounts, or of all; returns when the broker has them."""
        chosen = self.streams if streams is None else list(streams)
        for _ in range(times):
            for stream in chosen:
                self.versions[stream] += 1
                self.put(stream, self.versions[stream], **settings)
        self.flush()

    def put(self, stream: str, version: int, **settings: str) -> None:
        """One event, whether it is the account's next or not."""
        made = record(stream, version, **settings)
        self.producer.produce(
            self.topic,
            key=made.key,
            value=made.value,
            headers=made.headers,
            on_delivery=self._delivered,
        )
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(FLUSH_SECONDS) == 0

    def on(self, *partitions: int) -> list[str]:
        """The accounts whose last events are on these partitions."""
        return [stream for stream, number in self.partitions.items() if number in partitions]

    def one_on_each(self) -> list[str]:
        """An account on each partition that has any."""
        return sorted({number: stream for stream, number in self.partitions.items()}.values())

    def of(self, streams: Iterable[str]) -> dict[str, int]:
        """The last versions of some accounts."""
        return {stream: self.versions[stream] for stream in streams}

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        key, partition = message.key(), message.partition()
        assert key is not None
        assert partition is not None
        self.partitions[key.decode()] = partition
