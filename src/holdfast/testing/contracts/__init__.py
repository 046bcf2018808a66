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

from holdfast.testing.contracts.failures import FailureContract  # noqa: E402
from holdfast.testing.contracts.faults import FaultContract  # noqa: E402
from holdfast.testing.contracts.folding import FoldingContract  # noqa: E402
from holdfast.testing.contracts.handling import HandlingContract  # noqa: E402
from holdfast.testing.contracts.journal import JournalContract  # noqa: E402
from holdfast.testing.contracts.leases import LeaseContract  # noqa: E402
from holdfast.testing.contracts.messages import MessageContract  # noqa: E402
from holdfast.testing.contracts.outbox import OutboxContract  # noqa: E402
from holdfast.testing.contracts.running import RunningContract  # noqa: E402
from holdfast.testing.contracts.sets import SetContract  # noqa: E402
from holdfast.testing.contracts.sharing import SharingContract  # noqa: E402
from holdfast.testing.contracts.source import SourceContract  # noqa: E402
from holdfast.testing.contracts.store import StoreContract  # noqa: E402
from holdfast.testing.contracts.tables import TableContract  # noqa: E402

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
    "SetContract",
    "SharingContract",
    "SourceContract",
    "StoreContract",
    "TableContract",
]
