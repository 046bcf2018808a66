"""Outbox delivery: append and apply, coupled by the queue."""

from __future__ import annotations

from tests.contracts.outbox_failing import OutboxFailingContract
from tests.contracts.outbox_inline import InlineContract
from tests.contracts.outbox_operators import OutboxOperatorsContract
from tests.contracts.outbox_queueing import QueueingContract


class OutboxContract(
    QueueingContract, InlineContract, OutboxFailingContract, OutboxOperatorsContract
):
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""
