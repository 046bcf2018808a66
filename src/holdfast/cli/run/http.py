"""Metrics and health of a worker process over HTTP: `holdfast run --http`."""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from holdfast.app import App
from holdfast.cli.output import shown
from holdfast.errors import ConfigError
from holdfast.metrics import catalogue
from holdfast.metrics.gauges import Gauges
from holdfast.metrics.prometheus import NotAcceptable, scrape_function
from holdfast.runtime.run.supervisor import Supervisor

MAX_REQUESTS = 32
"""Maximum number of connections. One more takes the place of a client that is slow to ask."""

BACKLOG = 128
"""Maximum number of connections that wait to be accepted."""

REQUEST_TIMEOUT_SECONDS = 10.0
"""Timeout of reading a whole request from a client, and of sending the whole response."""

CHECK_INTERVAL_SECONDS = 0.1
"""Interval at which the server checks whether it should end."""

logger = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Response:
    """What a client gets."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[str], Response]
"""Makes a response. The argument is the request's Accept header."""


@contextmanager
def serving(app: App, supervisor: Supervisor, address: tuple[str, int]) -> Iterator[str]:
    """Serves an app's metrics and health for the time of the block, which gets the URL."""
    gauges = Gauges(app)
    pages: dict[str, Page] = {
        "/metrics": _metrics(app),
        "/livez": lambda _: livez(supervisor),
        "/readyz": lambda _: readyz(gauges, supervisor),
    }
    host, port = address
    try:
        server = _Server(host, port, pages)
    except OSError as error:
        raise ConfigError(
            f"can't listen on {_host_and_port(host, port)}: {error.strerror}"
        ) from error
    thread = threading.Thread(
        target=server.serve_forever,
        args=(CHECK_INTERVAL_SECONDS,),
        name="holdfast http",
        daemon=True,
    )
    thread.start()
    try:
        yield f"http://{_host_and_port(host, server.server_address[1])}"
    finally:
        server.shutdown()
        server.server_close()


def livez(supervisor: Supervisor) -> Response:
    """Whether the process is alive: no runner has crashed, and not all have faulted."""
    crashed = [runner.definition.name for runner in supervisor.workers if runner.crashed]
    faulted = [runner.definition.name for runner in supervisor.faulted]
    is_alive = not crashed and not supervisor.is_stuck
    return _json(is_alive, {"live": is_alive, "crashed": crashed, "faulted": faulted})


def readyz(gauges: Gauges, supervisor: Supervisor) -> Response:
    """Whether the database answers and no projection is faulted, in any process."""
    values = gauges.read()
    # The error is only logged: its text may name hosts and users.
    database = "ok" if values else "does not answer"
    faulted = {runner.definition.name for runner in supervisor.faulted} | {
        projection
        for (projection, _, state), value in values.get(catalogue.STATE, {}).items()
        if state == "faulted" and value
    }
    is_ready = bool(values) and not faulted
    return _json(is_ready, {"ready": is_ready, "database": database, "faulted": sorted(faulted)})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = BACKLOG

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self.asking: dict[socket.socket, None] = {}
        """The connections whose requests are not read yet, the oldest first."""
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own looks up a DNS name that is never used.

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False) and not self._take_slot():
            self.shutdown_request(request)
            return
        self.asking[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # The thread could not be started.
            self.asking.pop(request, None)
            self._slots.release()
            raise

    def _take_slot(self) -> bool:
        """Ends the connection of the client that is slowest to ask, if there is one."""
        slowest = next(iter(list(self.asking)), None)
        if slowest is None:
            return False
        self.asking.pop(slowest, None)
        with suppress(OSError):
            slowest.shutdown(socket.SHUT_RDWR)  # Its thread wakes up, and ends.
        return self._slots.acquire(timeout=REQUEST_TIMEOUT_SECONDS)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.asking.pop(request, None)
            self._slots.release()

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError):  # OSError: the client has gone away.
            logger.error("a request failed", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "holdfast", ""
    timeout = REQUEST_TIMEOUT_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection, self.timeout))

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        self.server.asking.pop(self.connection, None)
        self.connection.settimeout(self.timeout)  # For the response.
        if self.command in ("GET", "HEAD"):
            return True
        self._send(_text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only"))
        return False

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            known = ", ".join(self.server.pages)
            self._send(_text(HTTPStatus.NOT_FOUND, f"no such path; there is {known}"))
            return
        try:
            response = page(self.headers.get("Accept", ""))
        except Exception:
            self._send(_text(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; the log says why"))
            raise
        self._send(response)

    do_HEAD = do_GET

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("request: %s", shown(format % args))


class _Request(io.RawIOBase):
    """What a client sends, within a time for the whole of it."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._until = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not come in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def _metrics(app: App) -> Page:
    try:
        scrape = scrape_function(app)
    except ConfigError as error:
        missing = _text(HTTPStatus.NOT_IMPLEMENTED, str(error))
        return lambda _: missing

    def metrics(accept: str) -> Response:
        try:
            return Response(HTTPStatus.OK, *scrape(accept))
        except NotAcceptable:
            return _text(HTTPStatus.NOT_ACCEPTABLE, "the Accept header can't be read")

    return metrics


def _text(status: HTTPStatus, text: str) -> Response:
    return Response(status, f"{text}\n".encode())


def _json(is_ok: bool, value: Mapping[str, Any]) -> Response:
    status = HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, json.dumps(value).encode() + b"\n", "application/json")


def _host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
