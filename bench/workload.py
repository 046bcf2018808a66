"""W1: account events over 10,000 streams, the same on every machine and every run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

EVENT_COUNT = 200_000
ACCOUNT_COUNT = 10_000

_FIRST_RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_BALANCE_MODULUS = 1_000_003


@dataclass(frozen=True, slots=True)
class AccountEvent:
    """One event of W1. Its type is AccountOpened, FundsCredited or FundsDebited."""

    position: int
    stream: str
    version: int
    id: UUID
    type: str
    data: Mapping[str, str | int]
    recorded_at: datetime

    def json(self) -> str:
        """The payload as it is stored, without needless spaces."""
        return json.dumps(self.data, separators=(",", ":"))


class CheckSums(NamedTuple):
    """What a right read model adds up to. The last sum ties each balance to its version."""

    accounts: int
    balances: int
    versions: int
    balances_by_version: int


W1_SUMS = CheckSums(10_000, 194_385_087, 200_000, 49_414_804_784)

# Holds on PostgreSQL and on SQLite, whose % keeps the sign of a negative balance.
CHECK_SUMS_SQL = f"""
SELECT count(*), sum(balance), sum(version),
       sum((balance % {_BALANCE_MODULUS} + {_BALANCE_MODULUS}) % {_BALANCE_MODULUS} * (version + 1))
FROM {{table}}
"""


def events(count: int) -> Iterator[AccountEvent]:
    """The first `count` events of W1, in order."""
    streams = _streams()
    choice = random.Random(42)
    # Ids draw from a generator of their own, so that they change none of the data.
    ids = random.Random(9)
    versions: dict[str, int] = {}
    for index in range(count):
        stream = streams[choice.randrange(ACCOUNT_COUNT)]
        version = versions[stream] = versions.get(stream, 0) + 1
        type_, data = _opened(stream, choice) if version == 1 else _moved(stream, choice)
        yield AccountEvent(
            position=index + 1,
            stream=stream,
            version=version,
            id=_uuid4(ids),
            type=type_,
            data=data,
            recorded_at=_FIRST_RECORDED_AT + timedelta(milliseconds=index),
        )


@cache
def expected(count: int) -> CheckSums:
    """The check sums of the read model after the first `count` events."""
    balances: dict[str, int] = {}
    versions: dict[str, int] = {}
    for event in events(count):
        balances[event.stream] = balances.get(event.stream, 0) + change(event.type, event.data)
        versions[event.stream] = event.version
    sums = CheckSums(
        accounts=len(balances),
        balances=sum(balances.values()),
        versions=sum(versions.values()),
        balances_by_version=sum(
            balance % _BALANCE_MODULUS * (versions[stream] + 1)
            for stream, balance in balances.items()
        ),
    )
    if count == EVENT_COUNT and sums != W1_SUMS:
        raise AssertionError(f"W1 is no longer the data it was: {sums}, not {W1_SUMS}")
    return sums


def change(type_: str, data: Mapping[str, str | int]) -> int:
    """What an event adds to its account's balance."""
    if type_ == "AccountOpened":
        return int(data["opening_balance"])
    amount = int(data["amount"])
    return amount if type_ == "FundsCredited" else -amount


def _streams() -> list[str]:
    choice = random.Random(7)
    return [str(_uuid4(choice)) for _ in range(ACCOUNT_COUNT)]


def _uuid4(choice: random.Random) -> UUID:
    return UUID(int=choice.getrandbits(128), version=4)


# The order of the draws is part of W1: moving a field changes every event behind it.
def _opened(stream: str, choice: random.Random) -> tuple[str, dict[str, str | int]]:
    return "AccountOpened", {
        "account_id": stream,
        "owner": f"Customer {choice.randrange(10**6):06d}",
        "currency": "EUR",
        "opening_balance": choice.randrange(1000),
        "branch": f"br-{choice.randrange(100):03d}",
    }


def _moved(stream: str, choice: random.Random) -> tuple[str, dict[str, str | int]]:
    type_ = "FundsCredited" if choice.random() < 0.6 else "FundsDebited"
    return type_, {
        "account_id": stream,
        "amount": choice.randrange(1, 10_000),
        "currency": "EUR",
        "reference": f"ref-{choice.getrandbits(48):012x}",
        "channel": choice.choice(["web", "atm", "api"]),
    }
