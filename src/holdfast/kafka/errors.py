"""Errors of the Kafka client as errors of holdfast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from holdfast.errors import HoldfastError, StoreUnavailable

SECRETS = ("pass", "secret", "pem", "oauthbearer.config", "jaas", "username", "token")
"""Parts of the names of settings whose values are secret."""

PERMANENT = frozenset(
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.UNSUPPORTED_VERSION,
    )
)
"""Errors that last until the operator acts."""

UNKNOWN_PARTITION = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
)
"""Errors for a topic that was deleted, or that a broker does not know yet."""

OUT_OF_RANGE = frozenset((KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET))


def error_of(raised: KafkaException) -> KafkaError:
    """The error inside an exception of the client."""
    error: KafkaError = raised.args[0]
    return error


def failure(error: KafkaError, what: str) -> HoldfastError:
    """An error as ours: StoreUnavailable, which is tried again, unless it is known to last."""
    text = f"{what}: {error.str()} ({error.name()})"
    if error.code() in PERMANENT:
        return HoldfastError(f"{text}. This does not pass by itself: fix it, then start again")
    return StoreUnavailable(text, connection_lost=False)


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """A text with the values of secret settings replaced by `…`."""
    for name, value in settings.items():
        if value and is_secret(name):
            text = text.replace(str(value), "…")
    return text


def is_secret(name: str) -> bool:
    """Whether the value of a setting is secret."""
    return any(part in name for part in SECRETS)
