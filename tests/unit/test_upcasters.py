"""Payloads of older versions: upcasters in a chain, its gaps, and errors that name the event."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import ConfigError, EventTypes, PayloadError
from holdfast.model.event import RawEvent
from holdfast.model.event_types import VERSION_KEY, encode_metadata


class Paid(msgspec.Struct, frozen=True):
    amount: Decimal


def stored(type_name: str, data: str, *, version: int = 1, metadata: str = "") -> RawEvent:
    if not metadata:
        metadata = "{}" if version == 1 else f'{{"{VERSION_KEY}":{version}}}'
    moment = datetime(2024, 2, 29, tzinfo=UTC)
    return RawEvent(9, "order-1", 3, str(UUID(int=5)), type_name, data, metadata, moment)


Kind = Callable[[], type]


def _dataclass() -> type:
    @dataclass
    class Name:
        first: str
        last: str
        title: str = ""

    return Name


def _struct() -> type:
    return msgspec.defstruct("Name", [("first", str), ("last", str), ("title", str, "")])


def _model() -> type:
    class Name(pydantic.BaseModel):
        first: str
        last: str
        title: str = ""

    return Name


def chain(cls: type) -> EventTypes:
    """Version 1 had a full name, 2 first and last in one dict, 3 has them apart."""
    types = EventTypes()
    types.register(cls, name="named", version=3)

    @types.upcaster("named", from_version=2)
    def apart(data: dict[str, Any]) -> dict[str, Any]:
        return {**data.pop("name"), **data}

    @types.upcaster("named", from_version=1)
    def split(data: dict[str, Any]) -> dict[str, Any]:
        first, last = data.pop("full").split()
        return {"name": {"first": first, "last": last}, **data}

    types.check()
    return types


@pytest.mark.parametrize("kind", [_dataclass, _struct, _model])
def test_upcasters_run_in_a_chain(kind: Kind) -> None:
    cls = kind()
    types = chain(cls)
    wanted = cls(first="Ada", last="Lovelace", title="Lady")
    for event in (
        stored("named", '{"full":"Ada Lovelace","title":"Lady"}'),
        stored("named", '{"full":"Ada Lovelace","title":"Lady"}', metadata='{"schema_version":1}'),
        stored("named", '{"name":{"first":"Ada","last":"Lovelace"},"title":"Lady"}', version=2),
        stored("named", '{"first":"Ada","last":"Lovelace","title":"Lady"}', version=3),
    ):
        assert types.decode(event).data == wanted
    encoded = types.encode(wanted)
    assert encoded.schema_version == 3
    assert encode_metadata({"who": "me"}, schema_version=3) == '{"who":"me","schema_version":3}'


@pytest.mark.parametrize(
    ("data", "version", "reason"),
    [
        ('{"full":"Ada"}', 1, "not enough values"),
        ('{"nothing":1}', 1, "KeyError"),
        ('{"name":{"first":"Ada"}}', 2, "`last`"),
        ('{"first":1,"last":"x"}', 3, "`$.first`"),
        ('{"first":"x","last":"x"}', 4, "version 4, this code knows up to 3"),
        ("[]", 1, ""),
    ],
)
def test_a_chain_that_fails_names_the_event(data: str, version: int, reason: str) -> None:
    types = chain(_dataclass())
    with pytest.raises(PayloadError, match=str(UUID(int=5))) as caught:
        types.decode(stored("named", data, version=version))
    assert reason in str(caught.value)


@pytest.mark.parametrize("metadata", ['{"schema_version":"2"}', '{"schema_version":0}', "[]"])
def test_a_senseless_version_names_the_event(metadata: str) -> None:
    types = chain(_dataclass())
    event = stored("named", '{"first":"x","last":"x"}', metadata=metadata)
    with pytest.raises(PayloadError, match=str(UUID(int=5))):
        types.decode(event)


def test_gaps_in_a_chain_are_found_before_anything_runs() -> None:
    def same(data: dict[str, Any]) -> dict[str, Any]:
        return data

    gap = EventTypes()
    gap.register(Paid, version=4)
    gap.upcaster("Paid", from_version=1)(same)
    gap.upcaster("Paid", from_version=3)(same)
    with pytest.raises(ConfigError, match=r"version 4.*from version 1, but none from 2"):
        gap.check()
    with pytest.raises(PayloadError, match="no upcaster from version 2"):
        gap.decode(stored("Paid", '{"amount":"1"}', version=2))

    behind = EventTypes()
    behind.register(Paid)
    behind.upcaster("Paid", from_version=1)(same)
    with pytest.raises(ConfigError, match="not an old version"):
        behind.check()

    twice = EventTypes()
    twice.upcaster("Paid", from_version=1)(same)
    with pytest.raises(ConfigError, match="already has an upcaster from version 1"):
        twice.upcaster("Paid", from_version=1)(same)


def test_a_dict_type_has_versions_too() -> None:
    types = EventTypes()
    types.register(Paid, version=2)
    types.upcaster("Paid", from_version=1)(lambda data: {"amount": data["cents"]})
    assert types.decode(stored("Paid", '{"cents":"7"}')).data == Paid(Decimal(7))
    encoded = types.encode({"amount": "1"}, type_name="Paid")
    assert encoded.schema_version == 2
