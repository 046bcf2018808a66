"""Tries one item of the queue at once, because an operator says so."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.attempts import Blocked
from holdfast.runtime.failure.recovery import GiveUp
from holdfast.runtime.outbox.claim_renewal import ClaimRenewer
from holdfast.runtime.outbox.relay import Relay
from holdfast.runtime.store.claims import Claim
from holdfast.runtime.store.faults import text_of
from holdfast.runtime.store.session import Session


def replay(
    relay: Relay, token: str, taken: Sequence[Claim], session: Session, invoker: Invoker
) -> None:
    """Tries an item that is claimed under a token. Raises if it stops the projection."""
    executor = relay.executor(session, invoker)
    try:
        with ClaimRenewer(relay.renew).renewing(token):
            executor.work(token, taken)
    except Blocked as blocked:
        if isinstance(blocked.step, GiveUp):
            error, item = blocked.step.error, taken[0].head.id
            raise HoldfastError(f"item {item} stops the projection: {text_of(error)}") from error
