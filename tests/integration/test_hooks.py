"""started() and stopped(): for clients that handlers hold."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import (
    App,
    Backoff,
    ConfigError,
    NewEvent,
    Poll,
    Projection,
    ProjectionFaulted,
    on,
)
from holdfast.runtime.signals import HookFailed
from tests.support.postgres import wait_until

CALLED: list[str] = []


class Calling(Projection):
    errors: list[Exception]

    def started(self) -> None:
        CALLED.append("started")
        if self.errors:
            raise self.errors.pop()

    def stopped(self) -> None:
        CALLED.append("stopped")

    @on("Counted")
    def counted(self, event: Any, tx: Any) -> None:
        CALLED.append("event")


@pytest.fixture(autouse=True)
def errors(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What started() raises."""
    CALLED.clear()
    monkeypatch.setattr(Calling, "errors", [], raising=False)
    return Calling.errors


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        yield app


def append(app: App) -> None:
    for stream in "abcdef":
        app.journal.append(stream, [NewEvent({}, type="Counted")])


WHOLE = ["started", *["event"] * 6, "stopped"]


@pytest.mark.parametrize(
    "settings", [{}, {"shards": 3}, {"delivery": "outbox"}], ids=["log", "shards", "outbox"]
)
def test_they_are_called_once_in_each_process(app: App, settings: dict[str, Any]) -> None:
    app.projection(**settings)(Calling)
    append(app)
    with app.running():
        wait_until(lambda: CALLED.count("event") == 6, 20, "the events")
    assert CALLED == WHOLE
    with app.running():
        wait_until(lambda: len(CALLED) == 9, 20, "another start")
    assert [*WHOLE, "started", "stopped"] == CALLED


def test_an_append_that_applies_at_once_uses_them_too(store_url: str) -> None:
    with App(store_url) as app:
        app.projection(delivery="outbox", inline_seconds=20)(Calling)
        append(app)
    assert CALLED == WHOLE


@pytest.mark.parametrize("settings", [{}, {"delivery": "outbox"}], ids=["log", "outbox"])
def test_a_start_that_fails(app: App, errors: list[Exception], settings: dict[str, Any]) -> None:
    soon = Poll(failure_backoff=Backoff(delay_seconds=0.01), max_consecutive_failures=3)
    app.projection(poll=soon, **settings)(Calling)
    append(app)
    errors += [ConnectionRefusedError("not there yet")]
    app.catch_up()
    assert ["started", *WHOLE] == CALLED
    errors += [ValueError("a wrong address")]
    with pytest.raises(ProjectionFaulted, match="ValueError: a wrong address"):
        app.catch_up()
    assert ["started", *WHOLE, "started"] == CALLED


def test_a_stop_that_fails_is_logged(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(_: Calling) -> None:
        raise ValueError("can't close")

    heard: list[Any] = []
    app.listen(heard.append)
    monkeypatch.setattr(Calling, "stopped", stopped)
    app.projection(Calling)
    append(app)
    app.catch_up()
    failed = [signal for signal in heard if isinstance(signal, HookFailed)]
    assert [(signal.error_type, signal.error) for signal in failed] == [
        ("ValueError", "can't close")
    ]


def test_a_handler_of_that_name_is_no_hook(app: App) -> None:
    @app.projection
    class Machines(Projection):
        @on("Counted")
        def started(self, event: Any, tx: Any) -> None:
            CALLED.append(threading.current_thread().name)

    append(app)
    app.catch_up()
    assert CALLED == ["holdfast machines"] * 6


def test_hooks_that_would_not_work_are_refused(app: App) -> None:
    class Waits(Projection):
        async def started(self) -> None: ...

        @on("Counted")
        def counted(self, event: Any, tx: Any) -> None: ...

    class Takes(Projection):
        def stopped(self, row: Any) -> None: ...

        @on("Counted")
        def counted(self, event: Any, tx: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"started\(\) can't be async def"):
        app.projection(Waits)
    with pytest.raises(ConfigError, match=r"stopped\(\) is called without arguments"):
        app.projection(Takes)
