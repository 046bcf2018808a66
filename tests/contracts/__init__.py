"""What every database and every source must do, as test classes to subclass.

A driver passes when a subclass of each contract passes that supplies its fixtures:

    class TestJournal(JournalContract):
        @pytest.fixture
        def journal(self):
            with App("sqlite:///:memory:") as app:
                yield app.journal

These modules need pytest and hypothesis; the rest of `holdfast.testing` does not.
"""

import pkgutil

import pytest

# Before they are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(*(f"{__name__}.{m.name}" for m in pkgutil.iter_modules(__path__)))

from tests.contracts.failures import FailureContract  # noqa: E402
from tests.contracts.faults import FaultContract  # noqa: E402
from tests.contracts.folding import FoldingContract  # noqa: E402
from tests.contracts.handling import HandlingContract  # noqa: E402
from tests.contracts.journal import JournalContract  # noqa: E402
from tests.contracts.leases import LeaseContract  # noqa: E402
from tests.contracts.messages import MessageContract  # noqa: E402
from tests.contracts.outbox import OutboxContract  # noqa: E402
from tests.contracts.running import RunningContract  # noqa: E402
from tests.contracts.sharing import SharingContract  # noqa: E402
from tests.contracts.source import SourceContract  # noqa: E402
from tests.contracts.sql_projections import SqlProjectionContract  # noqa: E402
from tests.contracts.store import StoreContract  # noqa: E402
from tests.contracts.tables import TableContract  # noqa: E402

__all__ = [
    "FailureContract",
    "FaultContract",
    "FoldingContract",
    "HandlingContract",
    "JournalContract",
    "LeaseContract",
    "MessageContract",
    "OutboxContract",
    "RunningContract",
    "SharingContract",
    "SourceContract",
    "SqlProjectionContract",
    "StoreContract",
    "TableContract",
]
