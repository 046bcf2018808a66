"""A Kafka cluster that the client library itself plays, for tests that need no real one.

The Python client starts such a cluster too (`test.mock.num.brokers`), but then every topic has four
partitions, every consumer waits three seconds for its group, and no fault can be asked for. So we
call the functions of rdkafka_mock.h, in the library that the client has loaded.
"""

import ctypes
import uuid
from typing import Self

from confluent_kafka import cimpl

NODE = 1
PRODUCER = 0  # RD_KAFKA_PRODUCER


class MockCluster:
    """A cluster of one broker inside this process, for as long as it is open.

    It keeps everything in memory and knows no admin requests. A topic that nobody has created comes
    to be with four partitions when a client asks for it.
    """

    def __init__(self) -> None:
        self._library = _library()
        settings = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(settings, b"log_level", b"0", None, 0)
        self._client = self._library.rd_kafka_new(PRODUCER, settings, None, 0)
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        address = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap = bytes(address).decode()
        """The address for `bootstrap.servers`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_topic(self, name: str | None = None, *, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        name = name or f"holdfast-test-{uuid.uuid4().hex}"
        code = self._library.rd_kafka_mock_topic_create(
            self._cluster, name.encode(), partitions, NODE
        )
        if code != 0:
            raise ValueError(f"the topic {name} could not be created: error {code}")
        return name

    def fail(self, request: int, *codes: int) -> None:
        """Answer the next requests of this kind with these errors, one each.

        `request` is the number that Kafka's protocol gives to the kind: 0 is Produce, 1 is Fetch.
        `codes` are those of `KafkaError`; 0 lets one request pass.
        """
        errors = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, request, len(codes), errors
        )

    def go_down(self) -> None:
        """Cut all connections and take no more until `come_up`."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, NODE)

    def come_up(self) -> None:
        """Take connections again, at the same address and with all that was there."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, NODE)

    def close(self) -> None:
        """End the cluster. May be called again."""
        if self._client is not None:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._client)
            self._client = None


def _library() -> ctypes.CDLL:
    """The C library of the client: what is looked for in the client is looked for there too."""
    library = ctypes.CDLL(cimpl.__file__)
    handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    functions: dict[str, tuple[type | None, ...]] = {  # what it returns, then what it takes
        "rd_kafka_conf_new": (handle,),
        "rd_kafka_conf_set": (number, handle, text, text, text, ctypes.c_size_t),
        "rd_kafka_new": (handle, number, handle, text, ctypes.c_size_t),
        "rd_kafka_destroy": (None, handle),
        "rd_kafka_mock_cluster_new": (handle, handle, number),
        "rd_kafka_mock_cluster_destroy": (None, handle),
        "rd_kafka_mock_cluster_bootstraps": (text, handle),
        "rd_kafka_mock_topic_create": (number, handle, text, number, number),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, handle, ctypes.c_int32),
        "rd_kafka_mock_broker_set_down": (number, handle, ctypes.c_int32),
        "rd_kafka_mock_broker_set_up": (number, handle, ctypes.c_int32),
        "rd_kafka_mock_push_request_errors_array": (
            None,
            handle,
            ctypes.c_int16,
            ctypes.c_size_t,
            ctypes.POINTER(number),
        ),
    }
    for name, (returned, *taken) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = returned, taken
    return library
