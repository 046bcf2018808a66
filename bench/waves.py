"""W2: account events of any number, of which each million is like the first.

Accounts come in waves and go. So the number of rows grows with the journal, as it does in life,
while the rows that events change at one time stay as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import UUID

from bench.case import Sample, WrongResult
from bench.connection import connect
from bench.workload import AccountEvent

WAVE_ACCOUNTS = 5_000
EVENTS_PER_ACCOUNT = 20

_FIRST_RECORDED_AT = datetime(2026, 1, 1, tzinfo=UTC)
# Odd, so that no two accounts get the same name; large, so that neighbours' names are far apart.
_SCATTER, _NAMES = 2_654_435_761, 2**32
_CHANNELS = ("web", "atm", "api")

# What the journal itself amounts to, account by account, as the database adds it up.
COMPARE_SQL = """
SELECT count(*), count(kept.account_id), (SELECT count(*) FROM account_balance)
FROM (
    SELECT stream,
           sum(CAST(coalesce(data ->> 'opening_balance', data ->> 'amount') AS bigint)
               * CASE type WHEN 'FundsDebited' THEN -1 ELSE 1 END) AS balance,
           max(version) AS version
    FROM holdfast_event
    GROUP BY stream
) AS journal
LEFT JOIN account_balance AS kept
ON kept.account_id = journal.stream
   AND kept.balance = journal.balance
   AND kept.version = journal.version
"""


def events(count: int) -> Iterator[AccountEvent]:
    """The first `count` events of W2, in order."""
    for index in range(count):
        wave, place = divmod(index, WAVE_ACCOUNTS * EVENTS_PER_ACCOUNT)
        earlier, account = divmod(place, WAVE_ACCOUNTS)
        stream = stream_name(wave * WAVE_ACCOUNTS + account)
        data: dict[str, str | int]
        if earlier == 0:
            type_ = "AccountOpened"
            data = {
                "account_id": stream,
                "owner": f"Customer {index % 1_000_000:06d}",
                "currency": "EUR",
                "opening_balance": index % 1_000,
                "branch": f"br-{index % 100:03d}",
            }
        else:
            type_ = "FundsDebited" if index % 5 < 2 else "FundsCredited"
            data = {
                "account_id": stream,
                "amount": 1 + index % 9_973,
                "currency": "EUR",
                "reference": f"ref-{index:012x}",
                "channel": _CHANNELS[index % 3],
            }
        yield AccountEvent(
            position=index + 1,
            stream=stream,
            version=earlier + 1,
            id=UUID(int=index),
            type=type_,
            data=data,
            recorded_at=_FIRST_RECORDED_AT + timedelta(milliseconds=index),
        )


def stream_name(account: int) -> str:
    return f"account-{account * _SCATTER % _NAMES:08x}"


def check(url: str, _: Sample) -> None:
    """Every row of `account_balance` is what the journal says."""
    with closing(connect(url)) as connection:
        accounts, right, rows = connection.execute(COMPARE_SQL).fetchone() or (0, 0, 0)
    if not accounts == right == rows:
        raise WrongResult(f"{rows} rows, {right} of them right, for {accounts} accounts")
