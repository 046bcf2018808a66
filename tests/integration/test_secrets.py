"""A secret in a handler's error is hidden wherever the error is shown, by one rule."""

import logging
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    App,
    Backoff,
    Event,
    NewEvent,
    Park,
    Policy,
    Projection,
    ProjectionFaulted,
    Tx,
    on,
)
from holdfast.runtime.store.queue_items import QueueSelection

SECRET = "hunter2"
PARKS = Policy(on_error=Park(retry=Backoff.constant(0.001, max_attempts=2)))


@pytest.mark.parametrize("delivery", ["log", "outbox"])
@pytest.mark.parametrize("policy", [Policy(), PARKS])
def test_a_secret_is_hidden_wherever_an_error_is_shown(
    store_url: str, policy: Policy, delivery: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with App(store_url) as app, caplog.at_level(logging.DEBUG, logger="holdfast"):

        @app.projection(policy=policy, delivery=delivery)
        class Calls(Projection):
            @on("Paid")
            def paid(self, event: Event[Any], tx: Tx) -> None:
                try:
                    raise KeyError(f"oauth_client_secret={SECRET}")
                except KeyError as error:
                    error.add_note(f"{{'password': '{SECRET}'}}")
                    raise ValueError(f"no answer of https://me:{SECRET}@example.org") from error

        app.journal.append("a", [NewEvent({}, type="Paid")])
        with suppress(ProjectionFaulted):
            app.catch_up()
        items = app.queue.list(QueueSelection())
        told = [app.status(), app.explain("calls"), *map(app.queue.get, [i.id for i in items])]
    text = repr(told)
    assert "https://me:***@example.org" in text
    assert SECRET not in text
    assert SECRET not in caplog.text + "".join(str(vars(r)) for r in caplog.records)
