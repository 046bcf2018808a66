"""A POST request with one deadline for the whole of it, which can be kept from private networks."""

from __future__ import annotations

import io
import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}

MAX_RESPONSE_BYTES = 4_096
"""Maximum number of bytes read from the body of an error response."""

NAT64 = IPv6Network("64:ff9b::/96")

RESERVED = tuple(
    ip_network(net)
    for net in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "::/96",
        "::ffff:0:0:0/96",
        "64:ff9b:1::/48",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)
"""Networks that are not public, and that not every version of Python knows."""
"""IPv6 addresses whose last 32 bits are an IPv4 address that a gateway connects to."""

HOST = re.compile(r"(?=.{1,254}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")


class PrivateAddress(OSError):
    """A host is at no other addresses than those of this machine or of a private network."""


def post(
    url: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    *,
    timeout_seconds: float,
    allow_private: bool,
) -> tuple[int, bytes]:
    """Posts a body; returns the response's status and, unless that is 2xx, its first bytes.

    Raises OSError or HTTPException if there is no response in time. Only the lookup of the host's
    name may take longer, as long as the system's resolver does.
    """
    until = time.monotonic() + timeout_seconds
    assert url.hostname is not None
    connection = HTTPConnection(url.hostname, _port(url))
    connection.default_port = DEFAULT_PORTS[url.scheme]
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    with closing(_connect(url, until, allow_private=allow_private)) as raw:
        connection.sock = _LimitedSocket(raw, until)
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        found = b""
        with suppress(OSError, HTTPException):
            while response.status >= 300 and len(found) < MAX_RESPONSE_BYTES:
                read = response.read1(MAX_RESPONSE_BYTES - len(found))
                if not read:
                    break
                found += read
        return response.status, found


def parse(url: object) -> SplitResult:
    """An address that can be posted to; raises ValueError for any other."""
    if not isinstance(url, str) or not url.isascii() or re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError  # It would be changed in silence, or every request would fail.
    address = urlsplit(url)
    host = address.hostname or ""
    if address.scheme not in DEFAULT_PORTS or address.port == 0:
        raise ValueError
    if ":" in host:
        IPv6Address(host)
    elif not HOST.fullmatch(host):
        raise ValueError
    return address


def is_private(host: str) -> bool:
    """Whether the name of a host says that it is on this machine or in a private network."""
    if host.rstrip(".").rpartition(".")[2] == "localhost":
        return True
    try:
        return not _is_public(host)
    except ValueError:
        return False


def _is_public(text: str) -> bool:
    address = ip_address(text)
    inner: IPv4Address | None = None
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
    found = inner or address
    is_reserved = any(address.version == net.version and address in net for net in RESERVED)
    return found.is_global and not found.is_multicast and not is_reserved


def _connect(url: SplitResult, until: float, *, allow_private: bool) -> socket.socket:
    """A connection to the first permitted address of the host that answers."""
    found = socket.getaddrinfo(url.hostname, _port(url), type=socket.SOCK_STREAM)
    found = [to for to in found if allow_private or _is_public(str(to[4][0]))]
    if not found:
        raise PrivateAddress
    while True:
        (family, kind, protocol, _, address), *found = found
        raw = socket.socket(family, kind, protocol)
        try:
            raw.settimeout(_left(until) / (len(found) + 1))
            raw.connect(address)
            raw.settimeout(_left(until))
            if url.scheme == "https":
                return _tls().wrap_socket(raw, server_hostname=url.hostname)
        except BaseException as error:
            raw.close()
            if not found or not isinstance(error, OSError):
                raise
        else:
            return raw


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _port(url: SplitResult) -> int:
    return url.port or DEFAULT_PORTS[url.scheme]


def _left(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


class _LimitedSocket:
    """A socket for http.client, with one deadline for all that is sent and received."""

    def __init__(self, raw: socket.socket, until: float) -> None:
        self._raw, self._until = raw, until

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._raw.settimeout(_left(self._until))
            view = view[self._raw.send(view) :]

    def receive(self, buffer: Any) -> int:
        self._raw.settimeout(_left(self._until))
        return self._raw.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Received(self))

    def close(self) -> None:
        """Nothing: http.client closes it before the response is read."""


class _Received(io.RawIOBase):
    def __init__(self, limited: _LimitedSocket) -> None:
        self._limited = limited

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._limited.receive(buffer)
