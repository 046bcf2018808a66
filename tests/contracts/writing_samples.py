"""What the contracts about tx.write project: a row an event, some of which are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from holdfast.app import App
from holdfast.model.event import Event
from holdfast.model.policy import Policy
from holdfast.model.projection import Projection, Tx, on
from holdfast.runtime.limits import LIMITS
from tests.contracts.samples import Counted, fetch
from tests.support.limits import set_limits

EVENTS = 300
"""More than one group of handlers has."""
LANES = 7
ROWS = "CREATE TABLE written (n bigint PRIMARY KEY, note varchar(10) NOT NULL)"


class WritingSample:
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""

    placeholder: str

    @pytest.fixture
    def app(self) -> App:
        raise NotImplementedError

    @pytest.fixture(params=[7, LIMITS.group_events], ids=["small groups", "large groups"])
    def groups(self, app: App, request: pytest.FixtureRequest) -> None:
        """Groups of events whose statements are waited for together."""
        set_limits(app, group_events=request.param)

    @pytest.fixture
    def bad(self) -> set[int]:
        """The numbers whose statements fail."""
        return set()

    @pytest.fixture
    def told(self) -> list[int]:
        """The numbers that were called back after their commit."""
        return []

    @pytest.fixture
    def register(
        self, app: App, bad: set[int], told: list[int], groups: None
    ) -> Callable[..., None]:
        """Registers a projection that writes a row an event, after what `first` does."""
        insert = f"INSERT INTO written VALUES ({self.placeholder}, {self.placeholder})"

        def register(
            policy: Policy, first: Callable[[int, Tx], None] | None = None, **settings: Any
        ) -> None:
            class Written(Projection):
                tables: ClassVar = {"written": ROWS}

                @on(Counted)
                def counted(self, event: Event[Counted], tx: Tx) -> None:
                    n = event.data.n
                    if first is not None:
                        first(n, tx)
                    tx.write(insert, (n, None if n in bad else "x"))
                    tx.after_commit(lambda: told.append(n))

            class InLanes(Written):
                def lane(self, event: Event[Counted]) -> str:
                    return str(event.data.n % LANES)

            kind = Written if settings else InLanes
            app.projection(name="written", policy=policy, **settings)(kind)

        return register

    def append(self, app: App, events: int = EVENTS) -> None:
        app.journal.append("a", [Counted(n) for n in range(events)])

    def written(self, app: App) -> list[int]:
        return [row[0] for row in fetch(app, "SELECT n FROM written ORDER BY n")]
