"""Odd arguments are refused with an error of ours that names them, before a database sees them."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from io import BytesIO
from typing import Any

import pytest

from holdfast import (
    App,
    AppendError,
    ConfigError,
    Event,
    HoldfastError,
    NewEvent,
    PayloadError,
    Projection,
    QueueSelection,
    Tx,
    on,
)
from holdfast.kafka.partition import Partition, partition_of
from holdfast.sql.journal.import_lines import import_lines

BIG = 10**30
NUL, LONE = "a\0b", "a\ud800b"

Call = Callable[[App], object]


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        app.projection(Lines)
        yield app


class Lines(Projection):
    """A projection that does nothing."""

    @on("T")
    def t(self, event: Event[Any], tx: Tx) -> None:
        return None


NUMBERS: dict[str, Callable[[App, Any], object]] = {
    "item_id": lambda app, n: app.queue.get(n),
    "limit": lambda app, n: app.queue.list(limit=n),
    "after_id": lambda app, n: app.queue.list(after_id=n),
    "id": lambda app, n: QueueSelection(ids=(n,)),
    "version": lambda app, n: QueueSelection(version=n),
    "limit ": lambda app, n: app.queue.requeue(QueueSelection(), by="ann", limit=n),
    "limit  ": lambda app, n: app.audit(limit=n),
    "limit   ": lambda app, n: app.outbox.report(limit=n),
    "limit    ": lambda app, n: [*app.journal.read(limit=n)],
    "after": lambda app, n: [*app.journal.read(after=n)],
    "after ": lambda app, n: [*app.journal.tail(after=n, stop=lambda: True)],
    "after_version": lambda app, n: [*app.journal.read_stream("a", after_version=n)],
    "expected_version": lambda app, n: append(app, expected_version=n),
    "position": lambda app, n: app.wait_for("lines", n),
    "position ": lambda app, n: app.queue.add("lines", n, by="ann"),
    "to": lambda app, n: app.rewind("lines", to=n, by="ann"),
    "older_than_seconds": lambda app, n: QueueSelection(older_than_seconds=n),
    "timeout_seconds": lambda app, n: app.wait_for("lines", 1, timeout_seconds=n),
    "timeout_seconds ": lambda app, n: app.catch_up(timeout_seconds=n),
}


def append(app: App, data: Any = None, **settings: Any) -> object:
    return app.journal.append("a", [NewEvent({"n": data}, type="T")], **settings)


@pytest.mark.parametrize("number", [BIG, -1, "1", True, float("nan")], ids=str)
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_no_database_stores(app: App, name: str, number: Any) -> None:
    with pytest.raises((ConfigError, AppendError), match=f"^{name.strip()} is ") as told:
        NUMBERS[name](app, number)
    assert str(number)[:20].strip("'") in str(told.value)


TEXTS: dict[str, Callable[[App, str], object]] = {
    "projection": lambda app, text: QueueSelection(projection=text),
    "lane": lambda app, text: QueueSelection(lane=text),
    "error_type": lambda app, text: QueueSelection(error_type=text),
    "event_type": lambda app, text: QueueSelection(event_type=text),
    "by": lambda app, text: app.pause("lines", by=text),
    "note": lambda app, text: app.pause("lines", by="ann", note=text),
    "feed": lambda app, text: app.wait_for("lines", 1, feed=text),
    "projection ": lambda app, text: app.queue.add(text, 1, by="ann"),
}


@pytest.mark.parametrize("text", [NUL, LONE, 5], ids=ascii)
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_no_database_stores(app: App, name: str, text: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name.strip()} is .*" + re.escape(ascii(text))):
        TEXTS[name](app, text)


BY: list[Callable[[App, str], object]] = [
    lambda app, by: app.pause("lines", by=by),
    lambda app, by: app.resume("lines", by=by),
    lambda app, by: app.reset("lines", by=by),
    lambda app, by: app.rewind("lines", by=by, to=0),
    lambda app, by: app.depose("lines", by=by),
    lambda app, by: app.queue.requeue(QueueSelection(), by=by),
    lambda app, by: app.queue.resolve(QueueSelection(), by=by),
    lambda app, by: app.queue.purge(QueueSelection(), by=by),
    lambda app, by: app.queue.add("lines", 1, by=by),
]


@pytest.mark.parametrize("by", ["", " \t"])
@pytest.mark.parametrize("change", BY)
def test_a_change_by_nobody(app: App, change: Callable[[App, str], object], by: str) -> None:
    with pytest.raises(ConfigError, match="by is empty"):
        change(app, by)


ODD: dict[str, Call] = {
    "status 'gone' is not one of": lambda app: QueueSelection(status="gone"),  # type: ignore[arg-type]
    "ids is 5": lambda app: QueueSelection(ids=5),  # type: ignore[arg-type]
    "not a QueueSelection": lambda app: app.queue.list("lines"),  # type: ignore[arg-type]
    "not a datetime with a time zone": lambda app: app.queue.mark_retrying(
        QueueSelection(), by="ann", at=datetime(2026, 1, 1)
    ),
    "no projection": lambda app: app.explain([]),  # type: ignore[arg-type]
    "a listener is a function": lambda app: app.listen(5),  # type: ignore[arg-type]
    "metadata is a dict": lambda app: append(app, metadata="x"),
    "max_payload_bytes": lambda app: App("sqlite:///:memory:", max_payload_bytes="1"),  # type: ignore[arg-type]
    "auto_migrate": lambda app: App("sqlite:///:memory:", auto_migrate="no"),  # type: ignore[arg-type]
    "events is 5": lambda app: App("sqlite:///:memory:", events=5),  # type: ignore[arg-type]
    "source is 'kafka'": lambda app: app.projection(source="kafka"),  # type: ignore[call-overload]
    "strict is 'yes'": lambda app: app.projection(strict="yes"),  # type: ignore[call-overload]
    "name is a str": lambda app: app.projection(name=5)(Lines),  # type: ignore[call-overload]
    "inline_seconds is '1'": lambda app: app.projection(  # type: ignore[call-overload]
        delivery="outbox", inline_seconds="1"
    ),
    "keep_seconds is None": lambda app: app.sink(keep_seconds=None)(Lines),  # type: ignore[call-overload]
    "tables is": lambda app: app.projection(type("Tables", (Lines,), {"tables": ["x"]})),
}


@pytest.mark.parametrize("told", ODD)
def test_settings_and_arguments_of_another_type(app: App, told: str) -> None:
    with pytest.raises(HoldfastError, match=told):
        ODD[told](app)


def test_a_sink_needs_no_settings(app: App) -> None:
    app.sink(type("Mails", (Lines,), {}))
    assert "mails" in app.projections


@pytest.mark.parametrize("where", ["data", "metadata"])
def test_a_number_of_more_digits_than_python_writes(app: App, where: str) -> None:
    huge = 10**5000
    with pytest.raises(PayloadError, match="digits"):
        append(app, huge if where == "data" else 1, metadata={"n": huge} if where != "data" else {})


def test_a_line_that_is_nested_too_deep(app: App) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    line = b'{"stream": "a", "type": "T", "data": ' + deep + b"}"
    with pytest.raises(AppendError, match=r"line 1: .*too deep"):
        import_lines(app.journal, BytesIO(line))


@pytest.mark.parametrize("feed", ["t[007]", "t[-1]", "t[١]", "t[]", "t[1", "t[99999999999]"])
def test_a_partition_has_one_name(feed: str) -> None:
    assert partition_of("t[7]", ["t"]) == Partition("t", 7)
    with pytest.raises(ConfigError, match="is not a partition"):
        partition_of(feed, ["t"])
