"""Every signal is one log line with a constant text, in any encoding, and without secrets."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from holdfast import (
    App,
    Backoff,
    Decision,
    Event,
    NewEvent,
    Park,
    Policy,
    Poll,
    Projection,
    Retry,
    Skip,
    Tx,
    on,
)
from holdfast.errors import ProjectionFaulted, StoreUnavailable
from holdfast.logs import TEXTS, guarded, log_signal
from holdfast.runtime.signals import Failed, Faulted, Signal
from holdfast.runtime.store.faults import Fault

SIGNALS = get_args(Signal)
SURROGATE = "card \ud800 refused"
UNRULY = "one\r\ntwo\x1b[31m\x00\x85\u2028"
SECRET = "4111-1111"
SOON = Backoff.constant(0.001, max_attempts=2)


def sample(kind: type, text: str = "x") -> Any:
    """A signal of a kind, with this text wherever there is one."""
    fault = Fault("ValueError", text, f"Traceback: {text}", datetime(2026, 1, 1, tzinfo=UTC))
    values: dict[Any, Any] = {str: text, int: 1, float: 0.5, bool: True, Fault: fault}
    values |= {int | None: 1, float | None: 0.5}
    hints = get_type_hints(kind)
    return kind(**{field.name: values[hints[field.name]] for field in dataclasses.fields(kind)})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Everything that any logger logs, as a file in UTF-8 has it."""
    handler = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    format = "%(levelname)s %(message)s %(holdfast)s"
    handler.setFormatter(logging.Formatter(format, defaults={"holdfast": ""}))
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    yield lambda: (tmp_path / "log").read_text(encoding="utf-8")
    root.removeHandler(handler)
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    handler.close()


def test_every_signal_has_a_text_of_its_own() -> None:
    assert {*TEXTS, Faulted} == set(SIGNALS)
    texts = [text for _, text in TEXTS.values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("kind", SIGNALS, ids=lambda kind: kind.__name__)
def test_the_text_is_constant_and_the_fields_are_beside_it(
    kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="holdfast"):
        log_signal(sample(kind, "one"))
        log_signal(sample(kind, "two"))
    level, text = TEXTS.get(kind, (logging.ERROR, "projection faulted"))
    records = [record for record in caplog.records if record.levelno == level]
    assert [record.getMessage().partition(": ")[0] for record in records] == [text, text]
    assert [record.holdfast["projection"] for record in records] == [  # type: ignore[attr-defined]
        "one",
        "two",
    ]


@pytest.mark.parametrize("kind", SIGNALS, ids=lambda kind: kind.__name__)
def test_text_that_utf_8_can_not_encode_is_logged(
    kind: type, log: Callable[[], str], capfd: pytest.CaptureFixture[str]
) -> None:
    log_signal(sample(kind, SURROGATE))
    assert "card \\ud800 refused" in log()
    assert capfd.readouterr().err == ""  # where logging says that it has failed


@pytest.mark.parametrize("kind", SIGNALS, ids=lambda kind: kind.__name__)
def test_a_signal_is_one_line_whatever_its_texts_hold(kind: type, log: Callable[[], str]) -> None:
    log_signal(sample(kind, UNRULY))
    text = log()
    level, constant = TEXTS.get(kind, (logging.ERROR, "projection faulted"))
    told = [f"{logging.getLevelName(level)} {constant}"]
    if kind in (Faulted, Failed):
        told.append(f"{'INFO' if kind is Faulted else 'DEBUG'} {constant}, traceback")
    assert [line.partition(": ")[0] for line in text.splitlines()] == told
    assert "one\\r\\ntwo\\x1b[31m\\0\\x85\\u2028" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_a_fault_with_text_that_utf_8_can_not_encode_is_logged(log: Callable[[], str]) -> None:
    with App("sqlite:///:memory:") as app:

        @app.projection
        class Cards(Projection):
            @on("Paid")
            def paid(self, event: Event[Any], tx: Tx) -> None:
                raise ValueError(SURROGATE)

        app.journal.append("a", [NewEvent({}, type="Paid")])
        with pytest.raises(ProjectionFaulted):
            app.catch_up()
    assert "ValueError: card \\ud800 refused" in log()


@pytest.mark.parametrize("delivery", ["log", "outbox"])
@pytest.mark.parametrize("on_error", [Retry(SOON, exhausted=Park()), Park(retry=SOON), Skip()])
def test_a_failed_attempt_is_one_record(
    on_error: Decision, delivery: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with App("sqlite:///:memory:") as app, caplog.at_level(logging.DEBUG, logger="holdfast"):

        @app.projection(policy=Policy(on_error=on_error), delivery=delivery)
        class Cards(Projection):
            @on("Paid")
            def paid(self, event: Event[Any], tx: Tx) -> None:
                raise ValueError("no")

        app.journal.append("account-1", [NewEvent({}, type="Paid")])
        (event,) = app.journal.read_raw()
        app.catch_up()
        while app.queue.list()[0].status == "failed":
            app.catch_up()
        attempts = app.queue.list()[0].attempts
    told = [r for r in caplog.records if r.getMessage().startswith("event failed: ")]
    records = [vars(record)["holdfast"] for record in told]
    assert {record.levelno for record in told} == {logging.WARNING}
    assert [record["attempt"] for record in records] == list(range(1, attempts + 1))
    for record in records:
        assert (record["event_id"], record["event_type"]) == (str(event.id), "Paid")
        assert (record["stream"], record["max_attempts"]) == ("account-1", attempts)
        assert (record["error_type"], record["error"]) == ("ValueError", "no")
    *earlier, last = [(record["decision"], record["delay_seconds"]) for record in records]
    name = type(on_error).__name__.lower()
    assert [decision for decision, _ in earlier] == [name] * len(earlier)
    assert all(0 < delay <= 0.001 for _, delay in earlier)
    assert last == ("skip" if on_error == Skip() else "park", None)
    traces = [r for r in caplog.records if r.getMessage().startswith("event failed, traceback: ")]
    assert [record.levelno for record in traces] == [logging.DEBUG] * attempts
    assert all("raise ValueError" in record.getMessage() for record in traces)


def fail(*_: Any) -> Any:
    raise ValueError(f"card {SECRET} refused")


def fail_from_another(*_: Any) -> None:
    try:
        fail()
    except ValueError as error:
        error.add_note(f"see {SECRET}")
        raise RuntimeError("no") from error


def fail_after_commit(_: Any, tx: Tx) -> None:
    tx.after_commit(fail)


def lose_the_store(*_: Any) -> None:
    raise StoreUnavailable(f"no {SECRET}")


POLICIES = {
    "fatal": Policy(),
    "skip": Policy(on_error=Skip()),
    "park": Policy(on_error=Park()),
    "retry": Policy(on_error=Retry(), backoff=SOON),
    "park and retry": Policy(on_error=Park(retry=SOON)),
    "undecided": Policy(on_error=fail),
    "fallback": Policy(fallback=fail),
}


@pytest.mark.parametrize("mask", [True, lambda text: text.replace(SECRET, "****")])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("handle", [fail, fail_from_another, fail_after_commit, lose_the_store])
def test_a_masked_error_is_in_no_log_record(
    handle: Callable[..., None], policy: Policy, mask: Any, log: Callable[[], str]
) -> None:
    with App("sqlite:///:memory:") as app:
        _register(app, handle, policy, mask)
        app.listen(_fail_to_listen)
        _run(app)
    assert SECRET not in log()
    assert "a listener failed" in log()


@pytest.mark.parametrize("handle", [fail, fail_from_another, fail_after_commit, lose_the_store])
def test_without_a_mask_the_error_is_logged(
    handle: Callable[..., None], log: Callable[[], str]
) -> None:
    with App("sqlite:///:memory:") as app:
        _register(app, handle, Policy(), False)
        _run(app)
    assert SECRET in log()


def test_the_error_of_a_listener_is_logged_without_the_error_of_the_event(
    log: Callable[[], str],
) -> None:
    """A listener may be called while an error is handled, which must not be in its context."""
    try:
        fail()
    except ValueError:
        guarded(_fail_to_listen)(sample(Faulted))
    text = log()
    assert SECRET not in text
    assert "a listener failed" in text
    assert "KeyError: 'inner'" in text
    assert "LookupError: outer" in text


def _register(app: App, handle: Callable[..., None], policy: Policy, mask: Any) -> None:
    @app.projection(policy=policy, mask=mask, poll=Poll(max_consecutive_failures=2))
    class Cards(Projection):
        @on("Paid")
        def paid(self, event: Event[Any], tx: Tx) -> None:
            handle(event, tx)


def _run(app: App) -> None:
    app.journal.append("a", [NewEvent({}, type="Paid")])
    with suppress(ProjectionFaulted):
        app.catch_up()


def _fail_to_listen(signal: Signal) -> None:
    try:
        raise KeyError("inner")
    except KeyError:
        raise LookupError("outer")  # noqa: B904
