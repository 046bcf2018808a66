"""Runs the code of a Markdown page as it stands there, in a folder of its own.

    python -m tests.support.pages PAGE      (in the folder that the code may write to)

In the order of the page:
- A ```python block whose first line is a comment with a file's name becomes that file. Every other
  one is executed; all share their names.
- In a ```console block each line that begins with $ is run by the shell and must succeed. If lines
  follow it, they are its output; … stands for anything, and spaces count as one. Output that begins
  with "holdfast: " is an error's, with exit code 1. A command that ends in & runs until the page
  ends, is then asked to stop with SIGTERM, and must succeed too.
- A comment <!-- run … --> is Python that readers need not see.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 60

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>python|console)\n(?P<code>.*?)^ *```$"
    r"|^<!-- run\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code, and the line of the page before it."""

    language: str
    code: str
    line: int

    @property
    def file_name(self) -> str | None:
        """The file that a Python block says it is."""
        match = _FILE_NAME.match(self.code.partition("\n")[0])
        return match[1] if match and self.language == "python" else None


def pages() -> list[Path]:
    """README.md and everything in docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """What is to be run, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        hidden = match["hidden"]
        code = match["code"] if hidden is None else hidden
        indent = match["indent"] or ""
        lines = [line.removeprefix(indent) for line in code.splitlines(keepends=True)]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match["language"] or "python", "".join(lines), line))
    return found


def run(page: Path) -> None:
    """Runs a page in the present folder; raises at the first thing that is not as it says."""
    names = {"__name__": "__page__"}
    sys.path.insert(0, str(Path.cwd()))
    with ExitStack() as running:
        for block in blocks(page):
            if block.language == "console":
                for command, expected, line in _commands(block):
                    _run_command(f"{page}:{line}", command, expected, running)
            elif block.file_name:
                Path(block.file_name).write_text(block.code, encoding="utf-8")
            else:
                code = "\n" * block.line + block.code
                exec(compile(code, str(page), "exec"), names)


def _commands(block: Block) -> Iterator[tuple[str, list[str], int]]:
    command, line, output = "", 0, list[str]()
    for number, text in enumerate(block.code.splitlines(), block.line + 1):
        if text.startswith("$ "):
            if command:
                yield command, output, line
            command, line, output = text[2:], number, []
        elif command.endswith("\\"):
            command = command[:-1] + text.strip()
        else:
            output.append(text)
    if command:
        yield command, output, line


def _run_command(where: str, command: str, expected: list[str], running: ExitStack) -> None:
    if command.endswith("&"):
        running.enter_context(_in_background(where, command.removesuffix("&")))
        return
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    fails = bool(expected) and expected[0].startswith("holdfast: ")
    if done.returncode != int(fails):
        raise AssertionError(f"{where}: {command} ended with {done.returncode}:\n{printed}")
    if expected and not _matches(printed, "\n".join(expected)):
        said = "\n".join(expected)
        raise AssertionError(f"{where}: {command} printed\n{printed}\n\nthe page says\n{said}")


def _matches(printed: str, said: str) -> bool:
    parts = [re.escape(" ".join(part.split())) for part in said.split("…")]
    return re.fullmatch(" ?(.*? ?)?".join(parts), " ".join(printed.split())) is not None


@contextmanager
def _in_background(where: str, command: str) -> Iterator[None]:
    with subprocess.Popen(
        f"exec {command}", shell=True, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            _, printed = process.communicate(timeout=STOP_SECONDS)
        if process.returncode != 0:
            raise AssertionError(f"{where}: {command} ended with {process.returncode}:\n{printed}")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
