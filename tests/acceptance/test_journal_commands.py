"""`holdfast journal append`, `head` and `tail`, and wrong uses of them."""

import json
import os
import signal
from uuid import UUID

import pytest

from holdfast.cli.journal import _output
from tests.support.command import Place, Result

LIMIT = 1_000_000


def append(place: Place, stream: str, *arguments: str, stdin: bytes = b"") -> Result:
    given = ("--type", "Credited", *arguments)
    return place.run("journal", "append", "bank:app", stream, *given, stdin=stdin)


def test_append_and_look(any_place: Place) -> None:
    first = append(any_place, "a", "--data", '{"amount": 1}')
    assert (first.code, first.out) == (0, "a is at version 1; position 1\n")
    second = append(
        any_place, "a", "--data", "-", "--metadata", '{"by": "me"}', "--json",
        stdin=b'{"amount":\n2}',
    )  # fmt: skip
    assert second.json == {"stream": "a", "version": 2, "positions": [2], "applied": []}
    append(any_place, "b", "--data", '{"amount": 3}')
    assert any_place.ok("journal", "head", "bank:app").out == "3\n"
    assert any_place.ok("journal", "head", "bank:app", "--json").json == {"head": 3}
    lines = any_place.ok("journal", "tail", "bank:app").out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert lines[1].endswith('a v2  Credited  {"amount":2}')


def test_tail_in_json_of_some_and_of_one_stream(any_place: Place) -> None:
    lines = [{"stream": "ab"[n % 2], "type": "Credited", "data": {"amount": n}} for n in range(5)]
    text = "\n".join(map(json.dumps, lines))
    any_place.ok("journal", "import", "bank:app", "-", stdin=text.encode())
    tail = ("journal", "tail", "bank:app", "--json")

    def amounts(*arguments: str) -> list[int]:
        out = any_place.ok(*tail, *arguments).out
        return [json.loads(line)["data"]["amount"] for line in out.splitlines()]

    assert amounts("-n", "2") == [3, 4]
    assert amounts("-n", "0") == []
    assert amounts("--stream", "a", "-n", "2") == [2, 4]
    event = json.loads(any_place.ok(*tail, "-n", "1").out)
    assert list(event) == [
        "position", "stream", "version", "id", "type", "data", "metadata", "recorded_at",
    ]  # fmt: skip


def test_follow_shows_what_comes_until_ctrl_c(any_place: Place) -> None:
    append(any_place, "a", "--data", '{"amount": 1}')
    follow = any_place.start("journal", "tail", "bank:app", "--follow", "--json", "--stream", "a")
    follow.wait_until_said('"amount":1')
    append(any_place, "b", "--data", '{"amount": 2}')
    append(any_place, "a", "--data", '{"amount": 3}')
    follow.wait_until_said('"amount":3')
    assert follow.send(signal.SIGINT).wait() == 0
    assert [json.loads(line)["data"]["amount"] for line in follow.out] == [1, 3]
    assert follow.err == []


def test_the_expected_version(any_place: Place) -> None:
    assert append(any_place, "a", "--data", '{"amount": 1}', "--expected-version", "0").code == 0
    before = any_place.contents()
    refused = append(any_place, "a", "--data", '{"amount": 1}', "--expected-version", "0")
    assert "stream 'a' is at version 1, the append expected 0" in refused.error
    assert any_place.contents() == before


def test_the_same_id_again_changes_nothing(any_place: Place) -> None:
    given = ("--data", '{"amount": 1}', "--id", str(UUID(int=7)), "--json")
    assert append(any_place, "a", *given).json == append(any_place, "a", *given).json
    assert append(any_place, "b", *given).error
    assert any_place.ok("journal", "head", "bank:app").out == "1\n"


def test_unusual_stream_names_are_kept(place: Place) -> None:
    for stream in ('it\'s "quoted" \\ `$x`\t日本-🚀', "--data", "x" * 512):
        given = ("--type", "T", "--data", '{"n": 1}', "--json", "--", "bank:app", stream)
        assert place.ok("journal", "append", *given).json["stream"] == stream
        tail = place.ok("journal", "tail", "bank:app", "--json", f"--stream={stream}")
        assert json.loads(tail.out)["stream"] == stream


def test_control_characters_do_not_reach_the_terminal(place: Place) -> None:
    stream = "a\x1b[31mb\x9b1m"
    place.ok("journal", "append", "bank:app", stream, "--type", "T", "--data", '{"n": "\x9b"}')
    shown = place.ok("journal", "tail", "bank:app").out
    assert "a\\x1b[31mb\\x9b1m v1" in shown
    assert not {"\x1b", "\x9b"} & set(shown)
    in_json = place.ok("journal", "tail", "bank:app", "--json")
    assert (in_json.json["stream"], in_json.json["data"]) == (stream, {"n": "\x9b"})
    assert not {"\x1b", "\x9b"} & set(in_json.out)


def test_an_export_to_a_terminal_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = os.openpty()
    with os.fdopen(ours, "rb", 0) as read, os.fdopen(terminal, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        with _output("-", resume=False) as out:
            out.write('{"text":"\x9b2J"}\n'.encode())
        assert read.read(100) == b'{"text":"\\u009b2J"}\r\n'


REFUSED_STREAMS = {
    "": "a stream name can't be empty",
    "x" * 1_000: "stream name of 1,000 characters: the limit is 512",
    "\udcff": "is not valid Unicode",
}
REFUSED_PAYLOADS = {
    '{"amount": "much"}': "Expected `int`, got `str` - at `$.amount`",
    "{}": "missing required field `amount`",
    f'{{"amount": 1, "x": "{"y" * LIMIT}"}}': "the limit is 1,000,000",
}


def test_stream_names_and_payloads_that_are_refused(place: Place) -> None:
    place.ok("migrate", "bank:app")
    before = place.contents()
    for stream, said in REFUSED_STREAMS.items():
        assert said in append(place, stream, "--data", '{"amount": 1}').error
    for data, said in REFUSED_PAYLOADS.items():
        assert said in append(place, "a", "--data", "-", stdin=data.encode()).error
    assert place.contents() == before


def test_data_that_is_no_json_object_is_code_2(place: Place) -> None:
    for refused in (
        append(place, "a", "--data", "-", stdin=b""),
        append(place, "a", "--data", "[]"),
        append(place, "a", "--data", '{"amount": NaN}'),
        append(place, "a", "--data", "{}", "--metadata", "5"),
    ):
        assert (refused.code, refused.out) == (2, "")
        assert "is not a JSON object" in refused.err
    assert place.contents() == {}


def test_an_event_type_that_no_class_is_registered_for(place: Place) -> None:
    given = ("--type", "Anything", "--data", '{"deep": [1, {"x": null}]}')
    place.ok("journal", "append", "bank:app", "a", *given)
    event = json.loads(place.ok("journal", "tail", "bank:app", "--json").out)
    assert (event["type"], event["data"]) == ("Anything", {"deep": [1, {"x": None}]})
