"""The question before a change, on a terminal."""

import os

import click
import pytest

from holdfast.cli.confirm import confirm


@pytest.mark.parametrize(("answer", "goes_on"), [("y", True), ("n", False), ("", False)])
def test_the_answer_decides(
    answer: str, goes_on: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, terminal = os.openpty()
    with os.fdopen(ours, "wb", 0) as keyboard, os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        keyboard.write(f"{answer}\n".encode())
        if goes_on:
            confirm("This deletes\n\x1b[2J", yes=False)
        else:
            with pytest.raises(click.Abort):
                confirm("This deletes\n\x1b[2J", yes=False)
    said = capsys.readouterr()
    assert "This deletes\n\\x1b[2J\nGo on? [y/N]" in said.err + said.out
