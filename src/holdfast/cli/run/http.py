"""What `holdfast run --http` serves: metrics and health, to GET and HEAD, and nothing else."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from holdfast.metrics.prometheus import scraped
from holdfast.runtime.run.supervisor import Supervisor

MAX_REQUESTS = 32
"""Requests that are answered at the same time; further ones are turned away."""

REQUEST_SECONDS = 10.0
"""How long a client may keep us waiting."""

LOOK_SECONDS = 0.1
"""How often the server looks whether it is to end."""

logger = logging.getLogger("holdfast")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Page = Callable[[str], Answer]
"""Makes the answer; it gets the content types that the client accepts."""


@contextmanager
def serving(app: App, supervisor: Supervisor, address: tuple[str, int]) -> Iterator[str]:
    """Serves an app's metrics and health in the block, which gets the URL."""
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
        raise ConfigError(f"can't listen on {_shown(host, port)}: {error.strerror}") from error
    thread = threading.Thread(
        target=server.serve_forever, args=(LOOK_SECONDS,), name="holdfast http", daemon=True
    )
    thread.start()
    try:
        yield f"http://{_shown(host, server.server_address[1])}"
    finally:
        server.shutdown()
        server.server_close()


def livez(supervisor: Supervisor) -> Answer:
    """Whether the process does what it can: no runner has crashed, and not all have faulted."""
    crashed = [runner.definition.name for runner in supervisor.runners if runner.crashed]
    faulted = [runner.definition.name for runner in supervisor.faulted]
    is_alive = not crashed and len(faulted) < len(supervisor.runners)
    return _json(is_alive, {"live": is_alive, "crashed": crashed, "faulted": faulted})


def readyz(gauges: Gauges, supervisor: Supervisor) -> Answer:
    """Whether the database answers and no projection is faulted, here or in another process."""
    values = gauges.read()
    # Why it does not answer is for the logs: an error's text may name hosts and users.
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

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.pages = pages
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's own asks DNS for a name that nobody needs.

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # No thread could be started.
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        error = sys.exception()
        if not isinstance(error, OSError):  # A client that goes away is none of our business.
            logger.error("a request failed", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "holdfast", ""
    timeout = REQUEST_SECONDS

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        if self.command in ("GET", "HEAD"):
            return True
        self._send(_text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only"))
        return False

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            known = ", ".join(self.server.pages)
            self._send(_text(HTTPStatus.NOT_FOUND, f"not here; there is {known}"))
            return
        try:
            answer = page(self.headers.get("Accept", ""))
        except Exception:
            self._send(_text(HTTPStatus.INTERNAL_SERVER_ERROR, "failed; the log says why"))
            raise
        self._send(answer)

    do_HEAD = do_GET

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("request: %s", shown(format % args))


def _metrics(app: App) -> Page:
    try:
        scrape = scraped(app)
    except ConfigError as error:
        missing = _text(HTTPStatus.NOT_IMPLEMENTED, str(error))
        return lambda _: missing
    return lambda accept: Answer(HTTPStatus.OK, *scrape(accept))


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode())


def _json(is_well: bool, value: Mapping[str, Any]) -> Answer:
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, json.dumps(value).encode() + b"\n", "application/json")


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
