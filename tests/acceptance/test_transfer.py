"""`holdfast journal export` and `import`: streaming, exact and resumable."""

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import App
from tests.support.command import Place
from tests.support.postgres import wait_until

WAIT_SECONDS = 60.0
EVENTS = 6_000


def lines_of(count: int, *, streams: int = 50, **common: Any) -> list[dict[str, Any]]:
    """Events in a random but repeatable order of streams, each with all its fields."""
    dice = random.Random(count)
    versions: dict[str, int] = {}
    found = []
    for number in range(count):
        stream = f"account-{dice.randrange(streams)}"
        versions[stream] = versions.get(stream, 0) + 1
        line = {
            "stream": stream,
            "version": versions[stream],
            "id": str(UUID(int=dice.getrandbits(128))),
            "type": "Credited",
            "data": {"amount": number},
            "metadata": {"by": f"Größe {number}"},
            "recorded_at": f"2026-01-01T00:{number % 60:02}:00.000{number % 1000:03}Z",
        }
        found.append(line | common)
    return found


def text_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def write(place: Place, lines: list[dict[str, Any]], name: str = "events.jsonl") -> str:
    (place.folder / name).write_bytes(text_of(lines))
    return name


def exported(place: Place, *arguments: str) -> list[dict[str, Any]]:
    out = place.ok("journal", "export", "bank:app", *arguments).out
    return [json.loads(line) for line in out.splitlines()]


def head(place: Place) -> int:
    with App(place.url) as app:
        return app.journal.head()


def test_what_is_imported_is_exported(any_place: Place) -> None:
    lines = lines_of(EVENTS)
    done = any_place.ok("journal", "import", "bank:app", write(any_place, lines), "--json")
    assert done.json == {"lines": EVENTS, "imported": EVENTS, "passed_over": 0}
    found = exported(any_place)
    assert [line.pop("position") for line in found] == list(range(1, EVENTS + 1))
    for line, original in zip(found, lines, strict=True):
        original["recorded_at"] = line["recorded_at"]  # 10.100000 is 10.1 in the export
    assert found == lines


def test_from_one_database_to_the_other_and_back(
    tmp_path: Path, sqlite_url: str, postgres_url: str
) -> None:
    """Payloads arrive unchanged, whatever their spacing, order, numbers and characters."""
    first, second = Place(tmp_path / "1", sqlite_url), Place(tmp_path / "2", postgres_url)
    third = Place(tmp_path / "3", f"sqlite:///{tmp_path}/third.db")
    odd = '{"b" : 1.10, "n":123456789012345678901,"s":"\\u0001\\ud83d\\ude80🚀", "b":null}'
    text = text_of(lines_of(300)) + f'{{"stream":"odd","type":"Odd","data":{odd}}}\n'.encode()
    first.ok("journal", "import", "bank:app", "-", stdin=text)
    texts = [first.ok("journal", "export", "bank:app").out]
    for place in (second, third):
        place.ok("journal", "import", "bank:app", "-", stdin=texts[-1].encode())
        texts.append(place.ok("journal", "export", "bank:app").out)
    assert texts[0] == texts[1] == texts[2]
    assert odd in texts[0]


def test_a_killed_import_is_resumed(any_place: Place) -> None:
    lines = lines_of(EVENTS)
    name = write(any_place, lines)
    begun = any_place.start("journal", "import", "bank:app", "-")
    begun.write(text_of(lines[:2_600]) + text_of(lines[2_600:2_601])[:50])
    any_place.ok("migrate", "bank:app")
    wait_until(lambda: head(any_place) >= 2_500, WAIT_SECONDS, "most of it to be imported")
    begun.close()
    there = head(any_place)
    assert there < EVENTS
    done = any_place.ok("journal", "import", "bank:app", name, "--json").json
    assert done == {"lines": EVENTS, "imported": EVENTS - there, "passed_over": there}
    assert [line["id"] for line in exported(any_place)] == [line["id"] for line in lines]
    again = any_place.ok("journal", "import", "bank:app", name)
    assert again.out == f"imported 0 events; {EVENTS:,} were there already\n"


def test_two_imports_of_one_file_at_once_import_it_once(any_place: Place) -> None:
    lines = lines_of(3_000)
    del lines[7]["version"], lines[8]["version"]
    name = write(any_place, lines)
    any_place.ok("migrate", "bank:app")
    both = [any_place.start("journal", "import", "bank:app", name, "--json") for _ in range(2)]
    assert [command.wait() for command in both] == [0, 0], both
    said = [json.loads(command.out[0]) for command in both]
    assert sum(done["imported"] for done in said) == len(lines)
    assert sum(done["passed_over"] for done in said) == len(lines)
    assert [line["id"] for line in exported(any_place)] == [line["id"] for line in lines]


def test_lines_without_ids_can_be_resumed_too(any_place: Place) -> None:
    line = {"stream": "a", "type": "Credited", "data": {"amount": 1}}
    name = write(any_place, [line] * 700)
    first = any_place.ok("journal", "import", "bank:app", name, "--json").json
    assert first == {"lines": 700, "imported": 700, "passed_over": 0}
    write(any_place, [line] * 900)
    more = any_place.ok("journal", "import", "bank:app", name, "--json").json
    assert more == {"lines": 900, "imported": 200, "passed_over": 700}
    found = exported(any_place)
    assert [line["version"] for line in found] == list(range(1, 901))
    assert len({line["id"] for line in found}) == 900


def test_events_that_are_there_already_are_passed_over(place: Place) -> None:
    lines = lines_of(600)
    place.ok("journal", "import", "bank:app", "-", stdin=text_of(lines[:250]))
    done = place.ok("journal", "import", "bank:app", "-", "--json",
                        stdin=text_of(lines + lines[590:])).json  # fmt: skip
    assert done == {"lines": 610, "imported": 350, "passed_over": 260}
    assert [line["id"] for line in exported(place)] == [line["id"] for line in lines]


GOOD = '{"stream":"a","type":"Credited","data":{"amount":1}}'


def test_a_bad_line_stops_the_import_and_is_not_stored(place: Place) -> None:
    place.ok("journal", "import", "bank:app", "-", stdin=f"{GOOD}\n\n{GOOD}".encode())
    before = place.contents()
    nul = '{"stream":"a\\u0000b","type":"T","data":{}}'
    for line, said in {
        "not json": "line 4: is not an event: JSON is malformed",
        nul: "line 4: stream name 'a\\x00b' contains a NUL",
        GOOD.replace("1", '"x"'): "line 4: ValidationError: Expected `int`, got `str`",
    }.items():
        text = f"{GOOD}\n\n{GOOD}\n{line}\n{GOOD}".encode()
        error = place.run("journal", "import", "bank:app", "-", stdin=text).error
        assert error.startswith(said)
        assert "(0 imported, 2 there already); fix the line and import the file again" in error
        assert place.contents() == before


def test_an_import_goes_on_after_a_bad_line_is_fixed(any_place: Place) -> None:
    """The good lines before it are committed, also those of its own transaction."""
    lines = [json.dumps(line) for line in lines_of(1_300)]
    bad = '{"stream":"account-1","version":999,"type":"T","data":{}}'
    broken = [*lines[:1_200], bad, *lines[1_200:]]
    name = "events.jsonl"
    any_place.write(name, "\n".join(broken))
    error = any_place.run("journal", "import", "bank:app", name).error
    assert error.startswith("line 1,201: ")
    assert "(1,200 imported, 0 there already)" in error
    assert len(any_place.contents()["holdfast_event"]) == 1_200
    any_place.write(name, "\n".join(lines))
    done = any_place.ok("journal", "import", "bank:app", name, "--json").json
    assert done == {"lines": 1_300, "imported": 100, "passed_over": 1_200}
    assert [line["data"]["amount"] for line in exported(any_place)] == list(range(1_300))


def test_an_empty_file_imports_nothing(place: Place) -> None:
    for text in (b"", b"\n \r\n\n"):
        done = place.ok("journal", "import", "bank:app", "-", "--json", stdin=text).json
        assert (done["imported"], done["passed_over"]) == (0, 0)


def test_files_as_other_systems_write_them(place: Place) -> None:
    """With a byte order mark, CR LF, and no line break at the end."""
    text = b"\xef\xbb\xbf" + f"{GOOD}\r\n{GOOD}".encode()
    done = place.ok("journal", "import", "bank:app", "-", "--json", stdin=text).json
    assert done == {"lines": 2, "imported": 2, "passed_over": 0}


def test_a_file_that_is_not_there_or_no_text(place: Place) -> None:
    assert "nowhere.jsonl: No such file" in place.run("journal", "import", "bank:app",
                                                      "nowhere.jsonl").error  # fmt: skip
    (place.folder / "binary").write_bytes(b"\xff\xfe" * 40)
    assert "line 1: is not an event" in place.run("journal", "import", "bank:app", "binary").error
    assert "nowhere/x: No such file" in place.run("journal", "export", "bank:app", "-o",
                                                  "nowhere/x").error  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_file_that_can_not_be_written_is_named(place: Place) -> None:
    place.ok("journal", "import", "bank:app", write(place, lines_of(10)))
    failed = place.run("journal", "export", "bank:app", "-o", "/dev/full")
    assert failed.code == 1
    assert "holdfast: /dev/full: No space left on device" in failed.err


def test_export_of_a_part(place: Place) -> None:
    lines = lines_of(400, streams=3)
    place.ok("journal", "import", "bank:app", "-", stdin=text_of(lines))
    ids = [line["id"] for line in lines]
    of_one = [line["id"] for line in lines if line["stream"] == "account-1"]
    assert [line["id"] for line in exported(place, "--after", "390")] == ids[390:]
    assert [line["id"] for line in exported(place, "--stream", "account-1")] == of_one
    both = exported(place, "--stream", "account-1", "--after", "200")
    assert [line["id"] for line in both] == [i for i in of_one if ids.index(i) >= 200]


def test_a_half_written_export_is_resumed(any_place: Place) -> None:
    lines = lines_of(1_000)
    any_place.ok("journal", "import", "bank:app", "-", stdin=text_of(lines[:900]))
    command = ("journal", "export", "bank:app", "-o", "out.jsonl", "--resume")
    any_place.ok(*command)
    file = any_place.folder / "out.jsonl"
    file.write_bytes(file.read_bytes()[:-17])
    any_place.ok("journal", "import", "bank:app", "-", stdin=text_of(lines[900:]))
    assert "exported 101 events to out.jsonl" in any_place.ok(*command).err
    assert file.read_text() == any_place.ok("journal", "export", "bank:app").out
    assert "exported 0 events" in any_place.ok(*command).err


def test_an_export_never_writes_over_a_file(place: Place) -> None:
    place.ok("journal", "import", "bank:app", "-", stdin=text_of(lines_of(10, streams=3)))
    other = Place(place.folder / "other", f"sqlite:///{place.folder}/other.db")
    other.ok("journal", "import", "bank:app", "-", stdin=text_of(lines_of(11)))
    foreign = other.ok("journal", "export", "bank:app").out
    export = ("journal", "export", "bank:app", "-o", "out")
    place.write("out", "a letter")
    assert "is there already; go on where it ends with --resume" in place.run(*export).error
    for content, said in {
        "a letter\n": "not an export of a journal",
        "a letter": "not an export of a journal",
        foreign: "no event of this journal",
    }.items():
        place.write("out", content)
        assert said in place.run(*export, "--resume").error
        assert (place.folder / "out").read_text() == content
    place.write("out", place.ok("journal", "export", "bank:app", "--stream", "account-1").out)
    refused = place.run(*export, "--resume", "--stream", "account-2")
    assert "ends with an event of stream 'account-1'" in refused.error


def test_resume_needs_a_file(place: Place) -> None:
    assert place.run("journal", "export", "bank:app", "--resume").code == 2
