"""A failure as a policy is shown it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast import Event, Failure

AT = datetime(2026, 1, 1, tzinfo=UTC)


def failure_of(error: BaseException, *, attempt: int = 1, age_seconds: float = 0.0) -> Failure:
    """The failure of an event at position 7."""
    event = Event[Any](
        position=7,
        stream="account-1",
        version=1,
        id=UUID(int=1),
        type="credited",
        data={},
        metadata={},
        recorded_at=AT,
    )
    return Failure(
        event=event,
        error=error,
        attempt=attempt,
        position=7,
        projection="balances",
        lane="account-1",
        first_failed_at=AT,
        failed_at=AT + timedelta(seconds=age_seconds),
    )
