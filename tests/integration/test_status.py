"""What status, explain and the queue say about projections, on both databases."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast import App, Backoff, Policy, Projection, ProjectionStatus, Reason, Retry, Tx, on
from holdfast.model.event import Event
from tests.contracts.samples import Counted
from tests.support.limits import set_limits
from tests.support.postgres import wait_until

WAIT_SECONDS = 30.0


@pytest.fixture
def app(quick_url: str) -> Iterator[App]:
    with closing(App(quick_url)) as app:
        set_limits(app, recheck_seconds=0.05)
        yield app


def status_of(app: App, projection: str) -> ProjectionStatus:
    (found,) = [status for status in app.status() if status.projection == projection]
    return found


def reasons(app: App, projection: str) -> dict[str, Reason]:
    return {reason.kind: reason for reason in app.explain(projection)}


@pytest.mark.parametrize("limit", [None, 8])
def test_a_projection_that_retries_says_why(app: App, limit: int | None) -> None:
    backoff = Backoff(max_attempts=limit, delay_seconds=0.01, multiplier=1e6, max_delay_seconds=60)
    broken = True

    @app.projection(policy=Policy(on_error=Retry(backoff=backoff)))
    class Sums(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            if broken and event.data.n == 2:
                raise ValueError("two is too much")

    appended = app.journal.append("a", [Counted(1), Counted(2)])
    with app.running():
        wait_until(lambda: "waiting" in reasons(app, "sums"), WAIT_SECONDS, "a retry")
        wait_until(
            lambda: (e := status_of(app, "sums").last_error) is not None and e.attempts == 2,
            WAIT_SECONDS,
            "the second attempt",
        )
        status = status_of(app, "sums")
        error = status.last_error
        assert error is not None
        assert (error.type, error.message) == ("ValueError", "two is too much")
        assert (error.position, error.event_type) == (appended.positions[1], "Counted")
        assert (error.attempts, error.max_attempts) == (2, limit)
        assert error.since < error.at
        assert 'raise ValueError("two is too much")' in error.stacktrace
        assert (status.state, status.is_faulted) == ("running", False)
        assert status.waiting_until is not None
        reason = reasons(app, "sums")["waiting"]
        assert "two is too much" in reason.text
        assert f"attempt 2{'' if limit is None else ' of 8'} failed" in reason.text
        assert reason.fields["error_stacktrace"] == error.stacktrace
        assert reason.fields["since"] == error.since
        assert "faulted" not in reasons(app, "sums")
        broken = False
        app.pause("sums", by="ann")
        app.resume("sums", by="ann")  # An operator's change ends the wait.
        app.wait_for("sums", appended.position)
        assert status_of(app, "sums").last_error is None


def test_a_fault_says_how_often_its_event_was_tried(app: App) -> None:
    @app.projection(policy=Policy(on_error=Retry(backoff=Backoff.constant(0.01, max_attempts=3))))
    class Sums(Projection):
        @on(Counted)
        def counted(self, event: Event[Counted], tx: Tx) -> None:
            raise ValueError("no")

    app.journal.append("a", [Counted(1)])
    with pytest.raises(Exception, match="no"):
        app.catch_up()
    status = status_of(app, "sums")
    assert status.is_faulted
    assert status.last_error is not None
    assert status.last_error.attempts == 3
    assert status.last_error.since < status.last_error.at
    app.pause("sums", by="ann")
    assert (status_of(app, "sums").state, status_of(app, "sums").is_faulted) == ("paused", True)
