"""Tries one item of the queue at once, because an operator says so."""

from __future__ import annotations

from uuid import uuid4

from holdfast.errors import HoldfastError
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.outbox.claim_renewal import ClaimRenewer
from holdfast.runtime.outbox.relay import Relay
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.queue_items import QueueItem
from holdfast.runtime.store.session import Session


def replay(relay: Relay, item: QueueItem, session: Session, invoker: Invoker) -> None:
    """Tries one item now. Raises unless it is the head of its lane, and nobody has claimed it."""
    executor = relay.executor(session, invoker)
    token = f"replay-{uuid4().hex}"
    taken = executor.claims.claim_head(token, item.lane)
    if not taken:
        raise HoldfastError(
            f"item {item.id} is not free: a worker has it, or its projection is paused or not "
            f"live; holdfast explain {item.projection} says more"
        )
    if taken[0].head.id != item.id:
        executor.give_back(token, taken)
        raise HoldfastError(
            f"item {item.id} waits behind item {taken[0].head.id} of the same lane; that one "
            "comes first"
        )
    try:
        with ClaimRenewer(relay.renew).renewing(token):
            executor.work(token, taken)
    except Blocked as blocked:
        if isinstance(blocked.step, GiveUp):
            error = blocked.step.error
            raise HoldfastError(f"item {item.id} stops the projection: {text_of(error)}") from error
