"""The real `holdfast` command in processes of their own, in a folder with a module of an app."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote
from uuid import uuid4

import psycopg
from psycopg import sql

from holdfast import App
from tests.support.postgres import wait_until
from tests.support.processes import ROOT, Process

AnyProcess = Process | subprocess.Popen[bytes]
BANK = ROOT / "tests" / "acceptance" / "bank_module.py"
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its one line of JSON."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def error(self) -> str:
        """The one line on stderr with which it refused, after checking that it is all there is."""
        (line,) = self.err.splitlines()
        assert line.startswith("holdfast: "), self
        assert (self.code, self.out) == (1, ""), self
        return line.removeprefix("holdfast: ")


class Place:
    """A folder with `bank.py`, whose app is on the given database."""

    fresh = False
    """Whether its commands start in fresh interpreters, as users' do, and not as forks."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        folder.mkdir(exist_ok=True)
        self.write("bank.py", BANK.read_text())
        self._running: list[Command] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *arguments: str, stdin: bytes = b"", **env: str) -> Result:
        """Runs a command to its end."""
        process = self._begin(arguments, env)
        try:
            out, err = process.communicate(stdin, WAIT_SECONDS)
        finally:
            process.kill()
            code = process.wait(WAIT_SECONDS)
        return Result(code, out.decode(), err.decode())

    def ok(self, *arguments: str, stdin: bytes = b"", **env: str) -> Result:
        """Runs a command that must succeed."""
        done = self.run(*arguments, stdin=stdin, **env)
        assert done.code == 0, done
        return done

    def start(self, *arguments: str, **env: str) -> "Command":
        """Starts a command that goes on; `close` ends it."""
        command = Command(self._begin(arguments, env))
        self._running.append(command)
        return command

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What `holdfast status --json` says, by projection."""
        found = self.ok("status", "bank:app", "--json").json["projections"]
        return {status["projection"]: status for status in found}

    def wait_for(self, position: int, *projections: str, state: str = "running") -> None:
        """Returns when the projections (both, if none is named) are there, and in that state."""
        wanted = dict.fromkeys(projections or ("balances", "ledger"), (position, state))
        with App(self.url) as app:  # In this process: it is asked again and again.
            wait_until(
                lambda: (
                    wanted.items()
                    <= {s.projection: (s.position, s.state) for s in app.status()}.items()
                ),
                WAIT_SECONDS,
                f"{wanted}",
            )

    def credit(self, *amounts: int) -> None:
        """Appends a Credited event to stream `a` for each amount."""
        line = '{{"stream":"a","type":"Credited","data":{{"amount":{}}},"id":"{}"}}\n'
        lines = "".join(line.format(amount, uuid4()) for amount in amounts)
        self.ok("journal", "import", "bank:app", "-", stdin=lines.encode())

    def work(self, *arguments: str) -> "Command":
        """Starts a worker, and returns when it leads both projections."""
        worker = self.start("run", "bank:app", *arguments)
        worker.wait_until_said("projection started", times=2)
        return worker

    def contents(self) -> dict[str, list[Any]]:
        """Every row of every table, to see that nothing has changed."""
        return database_contents(self.url)

    def close(self) -> None:
        for command in self._running:
            command.close()

    def _begin(self, arguments: tuple[str, ...], extra: dict[str, str]) -> AnyProcess:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        env = {**kept, "PYTHONPATH": str(ROOT / "src"), "BANK_URL": self.url, **extra}
        if not self.fresh and not any(name.startswith("PYTHON") for name in extra):
            return Process(["holdfast", *arguments], cwd=self.folder, env=env)
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in the terminal is meant for the tests
        )


class Command:
    """A command that goes on until it is stopped. What it prints is in `out` and `err`."""

    def __init__(self, process: AnyProcess) -> None:
        self.out: list[str] = []
        self.err: list[str] = []
        self._process = process
        pairs = ((self._process.stdout, self.out), (self._process.stderr, self.err))
        self._readers = [
            threading.Thread(target=_collect, args=pair, daemon=True) for pair in pairs
        ]
        for reader in self._readers:
            reader.start()

    def __repr__(self) -> str:
        said = "\n".join([*self.out[-20:], *self.err[-40:]])
        return f"pid {self.pid}, code {self._process.poll()}, said:\n{said}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self, data: bytes) -> Self:
        """Feeds its stdin, which stays open."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()
        return self

    def send(self, number: signal.Signals) -> Self:
        self._process.send_signal(number)
        return self

    def wait(self) -> int:
        """Waits for its end and returns the exit code; all it said is there then."""
        code = self._process.wait(WAIT_SECONDS)
        for reader in self._readers:
            reader.join(WAIT_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        return code

    def wait_until_said(self, text: str, *, times: int = 1) -> None:
        """Returns when so many lines hold the text."""
        try:
            wait_until(lambda: self._said(text) >= times, WAIT_SECONDS, repr(text))
        except TimeoutError as error:
            raise AssertionError(f"{error}; {self!r}") from error

    def close(self) -> None:
        """kill -9. May be called again."""
        if self._process.returncode is None:
            self._process.kill()
            self.wait()

    def _said(self, text: str) -> int:
        return sum(text in line for line in [*self.out, *self.err])


def database_contents(url: str) -> dict[str, list[Any]]:
    """Every row of every table."""
    if url.startswith("sqlite"):
        path = Path(unquote(url.removeprefix("sqlite:///")))
        if not path.exists():
            return {}
        with closing(sqlite3.connect(path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
                for (name,) in names.fetchall()
            }
    with psycopg.connect(url) as server:
        found = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {
            name: sorted(
                server.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))), key=repr
            )
            for (name,) in found.fetchall()
        }


def _collect(pipe: Any, lines: list[str]) -> None:
    for line in pipe:
        lines.append(line.decode().rstrip("\n"))
