"""A KafkaSource's settings: what is wrong is said at once, and secrets are not."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from confluent_kafka import Message
from hypothesis import given

from holdfast import App, ConfigError, Projection, TableProjection, on
from holdfast.kafka import CloudEvents, Debezium, Decoded, Holdfast, Json, KafkaSource, Record
from holdfast.kafka.envelopes.holdfast import published_event
from holdfast.kafka.record import raw_event
from holdfast.model.event import RawEvent
from tests.support.bank_topic import Balance, Credited

SECRET = "hunter2-very-secret"
SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "bank",
    "sasl.password": SECRET,
    "ssl.key.password": SECRET,
}


def source(**settings: Any) -> KafkaSource:
    topics = settings.pop("topics", "orders")
    return KafkaSource(topics, **{"bootstrap": "127.0.0.1:1", "group": "g", **settings})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"topics": ()}, "at least one topic"),
        ({"topics": ("a", "a")}, "twice"),
        ({"bootstrap": ""}, "bootstrap"),
        ({"group": None}, "group"),
        ({"start": "now"}, "'earliest' or 'latest'"),
        ({"gap_seconds": -1}, "gap_seconds"),
        ({"restart_seconds": 0}, "restart_seconds"),
        ({"restart_seconds": 1, "contiguous": False}, "restart_seconds is for versions"),
        ({"first_version": "1"}, "first_version"),
        ({"first_version": 1.5}, "first_version"),
        ({"first_version": -1}, "first_version"),
        ({"contiguous": "no"}, "contiguous"),
        ({"dead_letters": ""}, "dead_letters"),
        ({"tombstones": ""}, "tombstones"),
        ({"start": "latest"}, "first_version=None"),
        ({"settings": "text"}, "settings maps"),
        ({"settings": {b"x": 1}}, "no text"),
        ({"window_events": -1}, "window_events"),
        ({"settings": {"group.id": "x"}}, "group=…"),
        ({"settings": {"enable.auto.commit": True}}, "holdfast sets it itself"),
        ({"settings": {"auto.offset.reset": "latest"}}, "start=…"),
        ({"dead_letters": "orders"}, "read as well"),
        ({"decode": Debezium()}, "contiguous=False"),
        ({"decode": CloudEvents()}, "version=…"),
        ({"decode": Json(id=None), "contiguous": False}, "window_events=0"),
        ({"decode": Holdfast}, "instance"),
        ({"decode": "json"}, "an envelope, or a function"),
    ],
)
def test_a_wrong_setting_is_said_at_once(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        source(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"topics": ["a", "b"], "start": "latest", "first_version": None},
        {"decode": Debezium(version="header:version")},
        {"decode": Debezium(), "contiguous": False},
        {"decode": CloudEvents(), "contiguous": False},
        {"decode": Json(id=None), "contiguous": False, "window_events": 0},
        {"decode": lambda record: None},
    ],
)
def test_what_is_right_is_taken(settings: dict[str, Any]) -> None:
    source(**settings)


def test_secrets_are_not_shown() -> None:
    secret = source(settings=SASL)
    assert SECRET not in repr(secret)
    assert "sasl.mechanisms" in repr(secret)
    assert SECRET not in secret._subscription.clients.masked(f"no such password: {SECRET}")


def test_an_error_of_the_client_shows_no_secret() -> None:
    with pytest.raises(ConfigError) as raised:
        source(settings={**SASL, "ssl.ca.pem": SECRET, "no.such.setting": "x"})
    assert "no.such.setting" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_key_of_ones_own_is_refused() -> None:
    with App("sqlite:///:memory:") as app:

        class ByCurrency(TableProjection[Balance]):
            def key(self, event: Any) -> str:
                return str(event.data.currency)

            @on(Credited)
            def credited(self, row: Balance, event: Any) -> None: ...

        with pytest.raises(ConfigError, match="order of streams"):
            app.projection(source=source())(ByCurrency)


def test_a_lane_of_ones_own_is_refused() -> None:
    with App("sqlite:///:memory:") as app:

        class Lanes(Projection):
            def lane(self, event: Any) -> str:
                return "one"

            @on(Credited)
            def credited(self, event: Any, tx: Any) -> None: ...

        with pytest.raises(ConfigError, match="order of streams"):
            app.projection(source=source())(Lanes)


def test_an_outbox_is_for_the_journal() -> None:
    with App("sqlite:///:memory:") as app, pytest.raises(ConfigError, match="journal"):
        app.projection(source=source(), delivery="outbox")


@given(
    key=st.one_of(st.none(), st.binary(max_size=8), st.text(max_size=8).map(str.encode)),
    value=st.one_of(
        st.none(),
        st.binary(max_size=8),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2).map(
            lambda data: json.dumps(data).encode()
        ),
    ),
    type_name=st.sampled_from([None, b"", b"*", b"Credited", b"\xff"]),
    version=st.sampled_from([None, b"", b"1", b"-1", b"007", b"1_0", b" 1", b"9" * 30, b"x"]),
    id_=st.sampled_from([None, b"", b"x", b"0d5c1c5e-7a0c-4b57-9a53-3c1f0c1a2b3c", b"\xff"]),
    at=st.sampled_from(
        [None, b"2026-01-01T00:00:00+00:00", b"2026-01-01T00:00:00+01:00", b"2026-01-01", b"x"]
    ),
    more=st.sampled_from([(), (("other", b"x"),), (("holdfast-metadata", b'{"a": 1}'),)]),
)
def test_the_fast_path_gives_what_the_slow_one_does(
    key: bytes | None,
    value: bytes | None,
    type_name: bytes | None,
    version: bytes | None,
    id_: bytes | None,
    at: bytes | None,
    more: tuple[tuple[str, bytes], ...],
) -> None:
    names = {
        "holdfast-type": type_name,
        "holdfast-version": version,
        "holdfast-id": id_,
        "holdfast-recorded-at": at,
    }
    own = tuple((name, found) for name, found in names.items() if found is not None)
    record = Record("orders", 3, 17, 1_700_000_000_000, key, value, (*own, *more))
    fast = published_event(message_of(record), "orders", 3)
    if fast is not None:
        slow = raw_event(record, Holdfast().decode(record), contiguous=True)
        assert fast.kept() == slow.kept()
        for name in RawEvent.__struct_fields__:
            assert getattr(fast, name) == getattr(slow, name)


def message_of(record: Record) -> Message:
    """A record as the client gives it."""
    return Message(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        timestamp=(1, record.timestamp_ms or 0),
    )


def test_the_fast_path_is_taken() -> None:
    """So that the test above compares something."""
    headers = (
        ("holdfast-type", b"Credited"),
        ("holdfast-version", b"7"),
        ("holdfast-id", b"0d5c1c5e-7a0c-4b57-9a53-3c1f0c1a2b3c"),
        ("holdfast-recorded-at", b"2026-01-01T00:00:00+00:00"),
    )
    found = published_event(message_of(Record("t", 0, 17, 1, b"a", b"{}", headers)), "t", 0)
    assert found is not None
    assert (found.position, found.stream, found.version) == (18, "a", 7)


def test_what_a_function_gives_may_be_nothing() -> None:
    def decode(record: Record) -> Decoded | None:
        return None

    decoder = source(decode=decode)._subscription.decoder
    assert decoder.event_of(Record("t", 0, 1, None, b"a", b"{}")) is None
