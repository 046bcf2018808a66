"""Starts `python -m MODULE …` in a real process that has not to import everything first.

A fresh interpreter takes longer to import holdfast and its drivers than most commands take to run,
and the tests start thousands. So each test process has a server, itself a process, that has
imported them once and does nothing but fork: it has one thread, no connection and no file. What it
forks is a process with its own pid, session, folder, environment, standard streams and end, and it
leaves through the interpreter's own exit.

What a fork can't show is shown in fresh interpreters, see `Place.fresh`: the way in, how imports
go, and what the interpreter makes of its streams and variables when it starts.
"""

import atexit
import faulthandler
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import IO, NoReturn

from holdfast.cli import COMMANDS

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 30.0
NUMBER_BYTES = 4
DESCRIPTORS = 5
"""What the server is sent for each process: its three streams, where to report, what to run."""
MODULES = (
    *(f"holdfast.cli.{module}" for module, _ in COMMANDS.values()),
    "holdfast.sql.postgres.database",
    "holdfast.sql.sqlite.database",
    "rich.console",
    "rich.table",
    "tests.world.build",
)
"""Imported beforehand. Nothing happens when they are, and nothing that a test replaces is there."""


class Process:
    """`python -m` with these arguments. It has what our tests need of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        merge_stderr: bool = False,
    ) -> None:
        self.returncode: int | None = None
        stdin, self.stdin = _pipe_to()
        self.stdout, stdout = _pipe_from()
        self.stderr, stderr = _pipe_from()
        self._reports, report = os.pipe()
        asked, ask = _pipe_to()
        theirs = (stdin, stdout, stderr, report, asked)
        with suppress(BrokenPipeError):  # The server has ended: no pid will be reported.
            socket.send_fds(_server()[0], [b"."], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        with suppress(BrokenPipeError), ask:
            what = {
                "arguments": list(arguments),
                "cwd": str(cwd),
                "env": dict(env),
                "merge_stderr": merge_stderr,
            }
            ask.write(json.dumps(what).encode())
        self.pid = self._report(START_SECONDS)

    def poll(self) -> int | None:
        with suppress(TimeoutError):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout_seconds: float) -> int:
        """Its exit code, or the negative number of the signal that ended it."""
        until = time.monotonic() + timeout_seconds
        while self.returncode is None:
            status = self._report(max(0.0, until - time.monotonic()))
            if not os.WIFSTOPPED(status):
                self.returncode = os.waitstatus_to_exitcode(status)
                os.close(self._reports)
        return self.returncode

    def wait_stopped(self, timeout_seconds: float) -> None:
        """Returns when a SIGSTOP has stopped it, with all its threads."""
        assert os.WIFSTOPPED(self._report(timeout_seconds))

    def communicate(self, data: bytes, timeout_seconds: float) -> tuple[bytes, bytes]:
        """Feeds it, waits for its end, and returns what it said on stdout and on stderr."""
        with ThreadPoolExecutor() as pool, self.stdout, self.stderr:
            pool.submit(self._feed, data)
            out, err = pool.submit(self.stdout.read), pool.submit(self.stderr.read)
            try:
                self.wait(timeout_seconds)
            finally:
                self.kill()
            return out.result(), err.result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # It may have ended since.
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _feed(self, data: bytes) -> None:
        with suppress(BrokenPipeError), self.stdin:
            self.stdin.write(data)

    def _report(self, timeout_seconds: float) -> int:
        """The next number from the server: first the pid, then what its wait has found."""
        if not select.select([self._reports], [], [], timeout_seconds)[0]:
            raise TimeoutError(f"process {self} said nothing in {timeout_seconds} s")
        number = os.read(self._reports, NUMBER_BYTES)
        if not number:
            _, said = _server()[1].communicate(timeout=STOP_SECONDS)
            raise RuntimeError(f"the process server has ended: {said.decode()}")
        return int.from_bytes(number, "little")


def _pipe_to() -> tuple[int, IO[bytes]]:
    reader, writer = os.pipe()
    return reader, os.fdopen(writer, "wb")


def _pipe_from() -> tuple[IO[bytes], int]:
    reader, writer = os.pipe()
    return os.fdopen(reader, "rb"), writer


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Where to ask for processes. The server ends with this process, and what it runs with it."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            # Pipes, so that its streams are made as those of the processes must be.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def close() -> None:
        ours.close()
        server.communicate(timeout=STOP_SECONDS)

    atexit.register(close)
    return ours, server


def _serve(asked: socket.socket) -> list[int]:
    """Forks at every request, and reports how children end. Returns in each child."""
    awoken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    reports: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([asked.fileno(), awoken], [], [])
        if awoken in ready:
            os.read(awoken, 4096)
            _report_all(reports)
        if asked.fileno() in ready:
            _, descriptors, _, _ = socket.recv_fds(asked, 1, DESCRIPTORS)
            if not descriptors:
                _end(reports)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                asked.detach()
                return descriptors
            reports[pid] = os.dup(descriptors[3])
            for descriptor in descriptors:
                os.close(descriptor)
            _tell(reports[pid], pid)


def _report_all(reports: dict[int, int]) -> None:
    """Tells of every child that has ended or been stopped since."""
    while reports:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return
        _tell(reports[pid], status)
        if not os.WIFSTOPPED(status):
            os.close(reports.pop(pid))


def _tell(report: int, number: int) -> None:
    with suppress(BrokenPipeError):  # Nobody is interested any more.
        os.write(report, number.to_bytes(NUMBER_BYTES, "little"))


def _end(reports: dict[int, int]) -> NoReturn:
    """The tests have ended, in whatever way. What they left running is not waited for."""
    for pid in reports:
        os.kill(pid, signal.SIGKILL)
    sys.exit()


def _become(descriptors: list[int], installed: list[str]) -> None:
    """Makes this process what it would be if it had just been started, and runs its module."""
    with open(descriptors[-1], "rb", closefd=False) as request:
        what = json.load(request)
    stdin, stdout, stderr, *_ = descriptors
    streams = (stdin, stdout, stdout if what["merge_stderr"] else stderr)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.setsid()  # a Ctrl-C in the terminal is meant for the tests
    os.chdir(what["cwd"])
    os.environ.clear()
    os.environ.update(what["env"])
    sys.path[:] = [what["cwd"], *os.environ["PYTHONPATH"].split(os.pathsep), *installed]
    invalidate_caches()
    faulthandler.enable()  # A SIGABRT asks it where its threads stand.
    sys.argv = what["arguments"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    given = os.environ["PYTHONPATH"].split(os.pathsep)
    installed = [entry for entry in sys.path if entry not in given]
    for module in MODULES:
        import_module(module)
    gc.freeze()  # A fork leaves alone what is there already, and ends in a third of the time.
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))), installed)
