"""JSON Lines: which lines are refused, and where an export is resumed, on every database."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import App, AppendError, ConcurrencyError
from holdfast.sql.journal.export import export_lines, resume_export
from holdfast.sql.journal.import_lines import Imported, import_lines

GOOD = '{"stream":"a","type":"Credited","data":{"amount":1}}'
BAD_LINES = {
    "not json": "is not an event: JSON is malformed",
    '["a list"]': "is not an event: Expected `object`, got `array`",
    '{"stream":"a","data":{}}': "missing required field `type`",
    '{"stream":"a","type":"T"}': "missing required field `data`",
    '{"stream":"a","type":"T","data":{},"metdata":{}}': "unknown field `metdata`",
    '{"stream":"a","type":"T","data":{},"metadata":[]}': "is not an object",
    '{"stream":"a","type":"T","data":{},"id":"x"}': "Invalid UUID - at `$.id`",
    '{"stream":"a","type":"T","data":{},"version":0}': "`int` >= 1 - at `$.version`",
    '{"stream":"a","type":"T","data":{},"recorded_at":"2026-01-01T00:00:00"}': "timezone",
    '{"stream":"a","type":"Credited","data":{"amount":"x"}}': "Expected `int`, got `str`",
    '{"stream":"","type":"T","data":{}}': "a stream name can't be empty",
    '{"stream":"a\\u0000b","type":"T","data":{}}': "contains a NUL character",
    '{"stream":"a","type":"T\\u0000","data":{}}': "contains a NUL character",
    '{"stream":"a","type":"T","data":{"x":"a\\u0000"}}': "its data has text with a NUL character",
    '{"stream":"a","type":"T","data":{},"metadata":{"\\u0000":1}}': "its metadata has text with",
    f'{{"stream":"{"x" * 1_000}","type":"T","data":{{}}}}': "the limit is 512",
    f'{{"stream":"a","type":"T","data":"{"x" * 1_000_000}"}}': "the limit is 1,000,000",
    f'{{"stream":"a","type":"T","data":"{"x" * 9_000_000}"}}': "has more than",
    '{"stream":"a","version":9,"type":"T","data":{}}': (
        "it is version 9 of stream 'a', and the journal has the stream at version 2"
    ),
    '{"stream":"b","id":"00000000-0000-0000-0000-000000000001","type":"T","data":{}}': (
        "its id 00000000-0000-0000-0000-000000000001 belongs to version 1 of stream 'first'"
    ),
}


@dataclass
class Credited:
    amount: int


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    with App(store_url) as app:
        app.events.register(Credited)
        yield app


def load(app: App, text: str) -> Imported:
    return import_lines(app.journal, io.BytesIO(text.encode()))


def export(app: App, stream: str | None = None) -> bytes:
    out = io.BytesIO()
    export_lines(app.journal, out, stream=stream)
    return out.getvalue()


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_stops_it_and_what_precedes_is_in(app: App, line: str) -> None:
    first = '{"stream":"first","id":"00000000-0000-0000-0000-000000000001","type":"T","data":{}}'
    load(app, first)
    with pytest.raises(AppendError, match=r"^line 4: ") as refused:
        load(app, f"{GOOD}\n\n{GOOD}\n{line}\n{GOOD}\n")
    assert BAD_LINES[line] in str(refused.value)
    assert "(2 imported, 0 there already)" in str(refused.value)
    assert [e.stream for e in app.journal.read()] == ["first", "a", "a"]


def test_a_version_that_does_not_follow_has_the_conflict_as_its_cause(app: App) -> None:
    with pytest.raises(AppendError) as refused:
        load(app, '{"stream":"a","version":2,"type":"T","data":{}}')
    causes = []
    cause = refused.value.__cause__
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    (conflict,) = [cause for cause in causes if isinstance(cause, ConcurrencyError)]
    assert (conflict.stream, conflict.expected, conflict.actual) == ("a", 1, 0)


def test_times_are_kept_to_the_microsecond_and_in_any_zone(app: App) -> None:
    line = '{{"stream":"a","type":"T","data":{{}},"recorded_at":"{}"}}\n'
    times = (
        "2026-01-02T03:04:05.678901Z",
        "1999-12-31T23:00:00.000001-05:30",
        "2040-01-01T00:00:00Z",
    )
    load(app, "".join(map(line.format, times)))
    assert [event.recorded_at for event in app.journal.read()] == [
        datetime.fromisoformat(time) for time in times
    ]


def test_a_line_without_a_time_was_recorded_now(app: App) -> None:
    before = datetime.now(UTC)
    load(app, GOOD)
    (event,) = app.journal.read()
    assert before - timedelta(milliseconds=1) <= event.recorded_at <= datetime.now(UTC)


def test_versions_may_be_left_out_of_some_lines(app: App) -> None:
    lines = [{"stream": "ab"[n % 2], "type": "T", "data": n} for n in range(10)]
    for number in (0, 3, 8):
        lines[number]["version"] = number // 2 + 1
    load(app, "\n".join(map(json.dumps, lines)))
    found = [(e.stream, e.version, e.data) for e in app.journal.read()]
    assert found == [("ab"[n % 2], n // 2 + 1, n) for n in range(10)]


@pytest.mark.parametrize("stream", [None, "a"])
def test_an_export_is_resumed_wherever_it_was_cut(app: App, stream: str | None) -> None:
    lines = [
        {"stream": "ab"[n % 2], "type": "T", "data": {"n": n, "text": "ü" * n}} for n in range(9)
    ]
    load(app, "\n".join(map(json.dumps, lines)))
    before = export(app, stream)
    load(app, GOOD)
    whole = export(app, stream)
    for size in range(len(before) + 1):
        file = io.BytesIO(before[:size])
        after = resume_export(app.journal, file, stream=stream)
        export_lines(app.journal, file, after=after, stream=stream)
        assert file.getvalue() == whole


def test_what_a_crash_left_behind_the_last_line_is_cut_off(app: App) -> None:
    """Longer than all that will be written there."""
    load(app, GOOD)
    whole = export(app)
    for rest in (b'{"position":2,"stream":"' + b"x" * 5_000, b"\0" * 5_000):
        file = io.BytesIO(whole + rest)
        assert resume_export(app.journal, file) == 1
        assert file.getvalue() == whole


def test_a_line_longer_than_the_step_back_is_found(app: App) -> None:
    line = json.dumps({"stream": "a", "type": "T", "data": "x" * 200_000})
    load(app, f"{GOOD}\n{line}\n")
    whole = export(app)
    for size in (len(whole), len(whole) - 1, len(whole) - 150_000):
        file = io.BytesIO(whole[:size])
        after = resume_export(app.journal, file)
        export_lines(app.journal, file, after=after)
        assert file.getvalue() == whole


def test_line_breaks_between_tokens_stay_within_the_line(app: App) -> None:
    """An append has none; they can come from somebody's own SQL."""
    load(app, GOOD)
    with app._database.writing() as connection:
        connection.script("""UPDATE holdfast_event SET data = '{\n  "amount":\r\n1}'""")
    text = export(app)
    assert text.count(b"\n") == 1
    assert json.loads(text)["data"] == {"amount": 1}
