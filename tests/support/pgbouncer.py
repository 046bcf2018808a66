"""A real PgBouncer in front of a test's database.

The tests run the program of the system's package. It refuses to run as root, so root starts it as
`nobody`.
"""

import os
import pwd
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psycopg

from tests.support.postgres import PORTS, wait_until

START_SECONDS = 30
STOP_SECONDS = 30
PORT_ATTEMPTS = 20

CONFIG = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {pool_mode}
default_pool_size = {pool_size}
"""


class PgBouncerUnavailable(Exception):
    """There is no PgBouncer on this machine; the message says where one comes from."""


class PgBouncer:
    """A PgBouncer for as long as it is open; `url` leads through it to the database."""

    def __init__(self, database_url: str, pool_mode: str, *, pool_size: int = 20) -> None:
        self._program = _program()
        self._database = urlsplit(database_url)
        self._pool_mode, self._pool_size = pool_mode, pool_size
        self.url = ""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self._folder.chmod(0o755)
        for port in random.sample(PORTS, PORT_ATTEMPTS):
            self._start(port)
            self.url = self._database._replace(netloc=f"postgres@127.0.0.1:{port}").geturl()
            wait_until(self._is_decided, START_SECONDS, "PgBouncer to start, or to end")
            if self._process.poll() is None:
                return self
        raise PgBouncerUnavailable((self._folder / "log").read_text())

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS)
        shutil.rmtree(self._folder)

    def _start(self, port: int) -> None:
        config = CONFIG.format(
            host=self._database.hostname,
            port=self._database.port,
            user=self._database.username,
            listen_port=port,
            pool_mode=self._pool_mode,
            pool_size=self._pool_size,
        )
        (self._folder / "pgbouncer.ini").write_text(config)
        user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, str(self._folder / "pgbouncer.ini")],
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_decided(self) -> bool:
        if self._process.poll() is not None:
            return True
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _program() -> str:
    places = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    if found := shutil.which("pgbouncer", path=places):
        return found
    raise PgBouncerUnavailable("install the system's package pgbouncer")
