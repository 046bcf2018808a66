"""What Kafka's errors mean for a projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from holdfast.errors import HoldfastError, StoreUnavailable

SECRETS = ("pass", "secret", "pem", "oauthbearer.config", "jaas", "username", "token")
"""Parts of the names of settings whose values are nobody's business."""

REFUSED = frozenset(
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.UNSUPPORTED_VERSION,
    )
)
"""What does not pass by itself."""

GONE = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
)
"""What may mean that a topic was deleted, or only that a broker does not know of it yet."""

OUT_OF_RANGE = frozenset((KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET))


def error_of(raised: KafkaException) -> KafkaError:
    """The error inside an exception of the client."""
    error: KafkaError = raised.args[0]
    return error


def failure(error: KafkaError, what: str) -> HoldfastError:
    """An error as ours: one that passes by itself, unless it is known not to."""
    text = f"{what}: {error.str()} ({error.name()})"
    if error.code() in REFUSED:
        return HoldfastError(f"{text}. This does not pass by itself: mend it, then start again")
    return StoreUnavailable(text, connection_lost=False)


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """A text that holds none of the settings that are secret."""
    for name, value in settings.items():
        if value and is_secret(name):
            text = text.replace(str(value), "…")
    return text


def is_secret(name: str) -> bool:
    """Whether a setting's value is nobody's business."""
    return any(part in name for part in SECRETS)
