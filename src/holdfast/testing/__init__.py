"""Tests for projections: given these events, when projected by this class, expect these rows.

    from holdfast.testing import given

    def test_credits_add_up():
        given(
            ("account-1", FundsCredited(5)),
            ("account-2", FundsCredited(7)),
            ("account-1", FundsCredited(1)),
        ).when(Balances).expect(
            Balance("account-1", 6),
            Balance("account-2", 7),
        )

The events go through a real journal on SQLite in memory, and a real runner; the clock stands still.
The class need not be registered on an app. `when` raises the error that a handler raises.

    scenario  given events, when projected
    tables    the rows of a projection, compared with the expected ones
    clock     a clock that stands still
"""

from holdfast.testing.clock import FixedClock
from holdfast.testing.scenario import Given, given
from holdfast.testing.tables import Rows, Table, Tables

__all__ = ["FixedClock", "Given", "Rows", "Table", "Tables", "given"]
