"""Settings that operators change while a projection runs."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import (
    App,
    Backoff,
    ConfigError,
    Event,
    NewEvent,
    Policy,
    Poll,
    Projection,
    Retry,
    Tx,
    on,
)
from tests.support.limits import set_limits
from tests.support.postgres import wait_until

TRIED: list[int] = []


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    TRIED.clear()
    with App(store_url) as app:
        set_limits(app, recheck_seconds=0.05)
        yield app


class Counting(Projection):
    @on("Counted")
    def counted(self, event: Event[Any], tx: Tx) -> None:
        TRIED.append(event.position)
        if event.data.get("fails", 0) >= TRIED.count(event.position):
            raise ValueError("not yet")


def append(app: App, stream: str = "a", **data: Any) -> int:
    return app.journal.append(stream, [NewEvent(data, type="Counted")]).position


@pytest.mark.parametrize("settings", [{}, {"shards": 2}], ids=["log", "shards"])
def test_a_worker_takes_up_another_poll(app: App, settings: dict[str, Any]) -> None:
    app.projection(poll=Poll.batch(3600), **settings)(Counting)
    with app.running():
        wait_until(lambda: any(s.state == "running" for s in app.status()), 20, "a worker")
        position = append(app)
        app.override("counting", {"poll.interval_seconds": 0.01, "poll.wake": True}, by="ann")
        app.wait_for("counting", position, timeout_seconds=20)
        app.override("counting", {"poll.empty_backoff_seconds": 0.01}, by="ann")
        app.wait_for("counting", append(app), timeout_seconds=20)


def again(_: Any) -> Retry:
    return Retry(Backoff.constant(3600))


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        (Policy(on_error=Retry(), backoff=Backoff.constant(3600)), {}),
        (Policy(on_error=Retry(), backoff=Backoff(schedule=lambda _: 3600)), {}),
        (Policy(on_error=again), {}),
        (Policy(on_error=again), {"shards": 2}),
    ],
)
def test_an_event_that_waits_is_tried_by_another_backoff(
    app: App, policy: Policy, settings: dict[str, Any]
) -> None:
    app.projection(policy=policy, **settings)(Counting)
    position = append(app, fails=3)
    with app.running():
        wait_until(lambda: any(s.waiting_until for s in app.status()), 20, "a wait")
        values = {"backoff.delay_seconds": 0.001, "backoff.max_attempts": None}
        app.override("counting", values, by="ann")
        app.wait_for("counting", position, timeout_seconds=20)
    assert [position] * 4 == TRIED


def test_an_outbox_works_on_more_streams_at_once_and_on_fewer(app: App) -> None:
    inside, most, go_on = [0], [0], threading.Event()
    counting = threading.Lock()

    @app.projection(delivery="outbox", concurrency=1)
    class Slow(Projection):
        calls_out = True

        @on("Counted")
        def counted(self, event: Event[Any], tx: Tx) -> None:
            with counting:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            go_on.wait(20)
            with counting:
                inside[0] -= 1

    for stream in "abc":
        append(app, stream)
    with app.running():
        wait_until(lambda: inside[0] == 1, 20, "one handler")
        app.override("slow", {"concurrency": 3}, by="ann")
        wait_until(lambda: inside[0] == 3, 20, "three handlers")
        app.drop_overrides("slow", by="ann")
        go_on.set()
        app.wait_for("slow", 3, timeout_seconds=20)
        wait_until(lambda: len(executors("slow")) == 1, 20, "one executor")
        most[0] = 0
        for stream in "abcdef":
            append(app, stream)
        app.wait_for("slow", 9, timeout_seconds=20)
    assert most[0] == 1


def executors(projection: str) -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(f"holdfast {projection} ")]


def test_they_are_kept_shown_and_audited(store_url: str, app: App) -> None:
    app.projection(poll=Poll(interval_seconds=2))(Counting)
    append(app)
    app.catch_up()
    app.override("counting", {"poll.interval_seconds": 5}, by="ann", note="less load")
    app.override("counting", {"poll.interval_seconds": 6, "backoff.jitter": 0}, by="ben")
    with App(store_url) as other:
        other.projection(poll=Poll(interval_seconds=3))(Counting)
        found = {setting.name: setting for setting in other.settings("counting")}
        setting = found["poll.interval_seconds"]
        assert (setting.value, setting.code_value) == (6, 3)
        assert setting.override is not None
        assert (setting.override.value, setting.override.by) == (6, "ben")
        assert found["poll.wake"].override is None
        assert "concurrency" not in found
        other.catch_up()
        definition = other._catalog.find("counting")
        assert (definition.poll.interval_seconds, definition.policy.backoff.jitter) == (6, 0)
    (status,) = app.status()
    assert status.overrides == {"poll.interval_seconds": 6, "backoff.jitter": 0}
    assert app.drop_overrides("counting", ["poll.interval_seconds"], by="ann") == [
        "poll.interval_seconds"
    ]
    assert app.drop_overrides("counting", by="ann") == ["backoff.jitter"]
    assert app.drop_overrides("counting", by="ann") == []
    assert app.status()[0].overrides == {}
    rows = [(row.action, row.actor, row.note) for row in reversed(app.audit("counting"))]
    assert rows == [
        ("set", "ann", "less load"),
        ("set", "ben", None),
        ("unset", "ann", None),
        ("unset", "ann", None),
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"poll.interval": 1}, "there is no setting 'poll.interval' to change; there are poll"),
        ({"poll.interval_seconds": 0}, "Poll.interval_seconds is 0"),
        ({"poll.wake": 1}, "Poll.wake is 1"),
        ({"backoff.multiplier": None}, "Backoff.multiplier is None"),
        ({"backoff.delay_seconds": 5, "backoff.max_delay_seconds": 1}, "must not be less"),
        ({"concurrency": 4}, "concurrency is for outbox delivery"),
    ],
)
def test_wrong_values_are_refused(app: App, values: dict[str, Any], message: str) -> None:
    app.projection(Counting)
    with pytest.raises(ConfigError, match=message):
        app.override("counting", values, by="ann")
    with pytest.raises(ConfigError, match="there is no setting 'x'"):
        app.drop_overrides("counting", ["x"], by="ann")
    assert app.audit() == []
