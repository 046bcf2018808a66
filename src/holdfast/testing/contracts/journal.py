"""Everything a journal promises, in one class."""

from __future__ import annotations

from holdfast.testing.contracts.appends import AppendContract
from holdfast.testing.contracts.concurrency import ConcurrencyContract
from holdfast.testing.contracts.reads import ReadContract


class JournalContract(AppendContract, ConcurrencyContract, ReadContract):
    """Appending and reading. Needs a fixture `journal`: a journal on an empty database."""
