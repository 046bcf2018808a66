"""A store that fails while others can reach it: those who ask are told since when."""

from typing import Any, ClassVar

from holdfast import App, Backoff, Event, Poll, Projection, StoreUnavailable, Tx, on
from tests.contracts.samples import Counted, eventually


def test_explain_says_since_when_the_store_fails(store_url: str) -> None:
    backoff = Backoff(delay_seconds=600, max_delay_seconds=600)
    with App(store_url) as app:

        @app.projection(poll=Poll(failure_backoff=backoff))
        class Failing(Projection):
            tables: ClassVar = {"failing": "CREATE TABLE failing (n integer)"}

            @on(Counted)
            def counted(self, event: Event[Any], tx: Tx) -> None:
                raise StoreUnavailable("the disk is full, say")

        app.journal.append("a", [Counted(1)])
        with app.running():
            eventually(lambda: [s.waiting_until for s in app.status()] not in ([], [None]))
        (status,) = app.status()
        assert "failed 1 times in a row since" in str(status.waiting_for)
        assert "the disk is full, say" in str(status.waiting_for)
        assert "waiting" in [reason.kind for reason in app.explain("failing")]
