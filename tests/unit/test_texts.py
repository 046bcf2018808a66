"""Texts of others: without secrets, in linear time, cut, and safe for a terminal."""

import json
import logging
from typing import Any

import pytest

from holdfast import App, Event, NewEvent, Park, Policy, Projection, ProjectionFaulted, Tx, on
from holdfast.cli.output import MAX_RECORD_CHARACTERS, _SafeFormatter
from holdfast.texts import clean, redacted, shown, shown_json, shown_lines

PAYLOAD_LIMIT = 1_000_000

HIDDEN = {
    "postgresql://anna:hunter2@host/db": "postgresql://anna:***@host/db",
    "connect to 'amqp://:hunter2@h' failed": "connect to 'amqp://:***@h' failed",
    "anna:hun@ter2@host": "anna:***@host",
    "password=hunter2 host=h": "password=*** host=h",
    "password='it\\'s hunter2' host=h": "password=*** host=h",
    'token = "hunter 2", x': "token = ***, x",
    "https://h/?oauth_client_secret=hunter2&page=2": "https://h/?oauth_client_secret=***&page=2",
    "https://h/?a=b&access_token=hunter2": "https://h/?a=b&access_token=***",
    "sasl.password=hunter2": "sasl.password=***",
    "API-KEY=hunter2": "API-KEY=***",
    "{'password': 'hunter2', 'port': 1}": "{'password': ***, 'port': 1}",
    '{"client_secret":"hunter2","port":1}': '{"client_secret":***,"port":1}',
    "{'token': 'hunter2": "{'token': ***",
    "ALTER ROLE anna PASSWORD 'hunter2'": "ALTER ROLE anna PASSWORD ***",
    "Authorization: Bearer hunter2": "Authorization: Bearer ***",
    "{'Authorization': 'Basic hunter2'}": "{'Authorization': 'Basic ***'}",
}
LEFT = (
    "mail to anna@example.org at 12:30:00 failed",
    "unexpected token: 'x'",
    "max_tokens=5",
    "Key (id)=(7) already exists",
    "https://example.org/a?page=2",
)
WORST = (
    "a:",
    "a@ ",
    "://",
    "://a:",
    "password",
    "password='",
    "password='\\'",
    'password="\\',
    "password   ",
    "secret_",
    "authorization: bearer ",
    "token'= ",
)
"""Pieces that patterns with nested repetition would take a quadratic time for."""


@pytest.mark.parametrize(("text", "expected"), HIDDEN.items())
def test_a_secret_is_hidden(text: str, expected: str) -> None:
    assert redacted(f"no: {text}\nnext") == f"no: {expected}\nnext"


@pytest.mark.parametrize("text", LEFT)
def test_other_text_is_left_alone(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("piece", WORST)
def test_the_worst_text_at_the_payload_limit(piece: str) -> None:
    text = piece * (PAYLOAD_LIMIT // len(piece)) + "@"
    redacted(text)  # A quadratic pattern would take minutes.
    assert len(clean(text, 2_000)) < 2_100


def test_a_secret_where_a_text_is_cut_is_hidden() -> None:
    for before in range(480, 510):
        text = "x" * before + " a://anna:hunter2@host " + "y" * 5_000
        assert "hunter" not in clean(text, 2_000)
    cut = clean("x" * PAYLOAD_LIMIT, 2_000)
    assert "998,000 characters left out" in cut


@pytest.mark.parametrize("policy", [Policy(), Policy(on_error=Park())])
def test_a_message_is_cut_before_it_is_logged(
    policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    formatter = _SafeFormatter("%(message)s")
    with App("sqlite:///:memory:") as app, caplog.at_level(logging.DEBUG, logger="holdfast"):

        @app.projection(policy=policy)
        class Quoting(Projection):
            @on("Paid")
            def paid(self, event: Event[Any], tx: Tx) -> None:
                raise ValueError(f"can't take {event.data['note']}")

        app.journal.append("a", [NewEvent({"note": "a:" * (PAYLOAD_LIMIT // 2 - 20)}, type="Paid")])
        if policy.on_error == Park():
            app.catch_up()
        else:
            with pytest.raises(ProjectionFaulted, match="characters left out"):
                app.catch_up()
    told = [formatter.format(record) for record in caplog.records]
    assert any("can't take a:a:" in text for text in told)
    assert max(map(len, told)) < 20_000
    assert all(len(str(vars(record).get("holdfast", ""))) < 20_000 for record in caplog.records)


def test_records_of_others_are_safe_too() -> None:
    record = logging.LogRecord(
        "driver", logging.INFO, "x", 1, "a://b:hunter2@c\n\x1b[2J\x9b" + "x" * 60_000, None, None
    )
    told = _SafeFormatter("%(message)s").format(record)
    assert told.startswith("a://b:***@c\n\\x1b[2J\\x9bxxx")
    assert len(told) < MAX_RECORD_CHARACTERS + 100


STRANGE = "\x1b[31m\x7f\x85\u202e\u2028\U000e0001\ttab"


def test_what_a_terminal_obeys_is_escaped() -> None:
    assert shown(f"ü{STRANGE}") == r"ü\x1b[31m\x7f\x85\u202e\u2028\U000e0001\ttab"
    assert shown_lines(f"a\n{STRANGE}\r\n") == "a\n" + shown(STRANGE) + "\\r\n"
    assert shown("one\ntwo") == r"one\ntwo"


def test_json_keeps_its_values() -> None:
    document = json.dumps({"text": f"ü💡{STRANGE}"}, ensure_ascii=False, indent="\t")
    printed = shown_json(document)
    assert json.loads(printed) == json.loads(document)
    assert all(line.strip("\t").isprintable() for line in printed.split("\n"))
    assert "ü💡" in printed
