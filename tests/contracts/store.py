"""Everything a store promises a runner, in one class."""

from __future__ import annotations

from tests.contracts.checkpoints import CheckpointContract
from tests.contracts.rows import RowContract


class StoreContract(CheckpointContract, RowContract):
    """Checkpoints, epochs, transactions and rows.

    Needs a fixture `open_session`: opens sessions on one empty, migrated store.
    """
