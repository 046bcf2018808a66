"""Everything a journal promises, in one class."""

from __future__ import annotations

from tests.contracts.appends import AppendContract
from tests.contracts.concurrency import ConcurrencyContract
from tests.contracts.reads import ReadContract


class JournalContract(AppendContract, ConcurrencyContract, ReadContract):
    """Appending and reading. Needs a fixture `journal`: a journal on an empty database."""
