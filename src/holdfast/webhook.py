"""A sink that posts to a URL, signed.

Requests are signed as https://www.standardwebhooks.com asks: receivers check them with the
libraries that exist for many languages, and tell by `webhook-id` whether they know a message, for
it may come more than once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import msgspec

from holdfast.errors import ConfigError, HoldfastError
from holdfast.model.event import Event
from holdfast.model.event_types import payload_json
from holdfast.model.failure import Failure
from holdfast.model.policy import Park, Policy, Retry
from holdfast.model.projection import Projection, Tx, on

PREFIX = "whsec_"
"""So begins a secret; base64 follows."""

LATER = (408, 409, 425, 429)
"""Refusals that may be over soon."""

MAX_ANSWER_BYTES = 4_096
"""So much of a refusal is read."""

SECRET_CHARACTERS = 4
"""What is shorter, in a URL, is no token."""

MAX_ANSWER_CHARACTERS = 200
"""So much of a refusal's text is kept with the item's error."""


class WebhookError(HoldfastError):
    """A receiver did not take a message. `status` is None where there was no answer."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_final(self) -> bool:
        """Whether the receiver has refused the message itself: it would do so again."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in LATER


class Webhook(Projection):
    """Posts what it handles to `url`; register it with `@app.sink()`, or for events of the journal
    with `@app.projection(delivery="outbox")`.

    `topics` are the topics or event types it is for. `secret` is `whsec_` and base64; several are
    for the time in which a receiver changes from one to the next. An answer of 2xx is success, and
    redirects are not followed. `timeout_seconds` limits each wait for the receiver; the policy's
    `Backoff(timeout_seconds=…)` limits the whole.
    """

    url: ClassVar[str]
    secret: ClassVar[str | Sequence[str]]
    topics: ClassVar[Sequence[type | str]] = ()
    timeout_seconds: ClassVar[float] = 15.0
    calls_out: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.topics:

            def posted(self: Webhook, event: Event[Any], tx: Tx) -> None:  # noqa: ARG001
                self.post(event)

            cls.posted = on(*cls.topics)(posted)  # type: ignore[attr-defined]

    def __init__(self) -> None:
        where = type(self).__qualname__
        address = urlsplit(getattr(self, "url", ""))
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"{where}.url must be an http or https address")
        self._address = address
        self._receiver = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        secrets = getattr(self, "secret", ())
        self._keys = [
            _key(secret, where) for secret in ([secrets] if isinstance(secrets, str) else secrets)
        ]
        if not self._keys:
            raise ConfigError(f"{where}.secret is missing; `{PREFIX}` and 24 to 64 bytes in base64")

    @classmethod
    def policy(cls) -> Policy:
        """As `Policy.outbox()`, but a message that the receiver refuses is dead at once."""
        usual = Policy.outbox()
        return Policy(on_error=_decide, backoff=usual.backoff, exhausted=usual.exhausted)

    def body(self, event: Event[Any]) -> Any:
        """What is posted, as JSON."""
        return {
            "type": event.type,
            "timestamp": event.recorded_at,
            "key": event.stream,
            "data": msgspec.Raw(payload_json(event.data)),
        }

    def post(self, event: Event[Any]) -> None:
        """Posts one message; raises WebhookError unless the receiver takes it."""
        body = msgspec.json.encode(self.body(event))
        headers = {
            "content-type": "application/json",
            "user-agent": "holdfast",
            **signed(self._keys, str(event.id), int(time.time()), body),
        }
        try:
            status, text = self._posted(body, headers)
        except (OSError, HTTPException) as error:
            # Not its text, nor the error itself: they may show a URL with a token in it.
            kind = type(error).__name__
            raise WebhookError(f"{self._receiver} does not answer: {kind}") from None
        if not 200 <= status < 300:
            raise WebhookError(f"{self._receiver} answered {status}: {text}", status=status)

    def _posted(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """The status of the answer, and the beginning of its text."""
        address = self._address
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        target = f"{address.path or '/'}?{address.query}" if address.query else address.path or "/"
        assert address.hostname is not None
        connection = kind(address.hostname, address.port, timeout=self.timeout_seconds)
        with closing(connection):
            connection.request("POST", target, body, {**headers, **self._authorization()})
            answer = connection.getresponse()
            return answer.status, "" if answer.status < 300 else self._text(answer)

    def _authorization(self) -> dict[str, str]:
        address = self._address
        if address.username is None:
            return {}
        pair = f"{unquote(address.username)}:{unquote(address.password or '')}".encode()
        return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}

    def _text(self, answer: HTTPResponse) -> str:
        """The beginning of an answer, without what the receiver has quoted of the URL."""
        found, until = b"", time.monotonic() + self.timeout_seconds
        with suppress(OSError, HTTPException):
            while len(found) < MAX_ANSWER_BYTES and time.monotonic() < until:
                read = answer.read1(MAX_ANSWER_BYTES - len(found))
                if not read:
                    break
                found += read
        text = found.decode(errors="replace")
        address = self._address
        parts = [*address.path.split("/"), *re.split("[&=]", address.query)]
        for part in (*parts, address.username or "", address.password or ""):
            if len(part) >= SECRET_CHARACTERS:
                text = text.replace(part, "***").replace(unquote(part), "***")
        return text[:MAX_ANSWER_CHARACTERS]


def signed(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove where a body comes from, and when it was posted."""
    text = f"{id}.{timestamp}.".encode() + body
    signatures = [
        "v1," + base64.b64encode(hmac.digest(key, text, hashlib.sha256)).decode() for key in keys
    ]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def _decide(failure: Failure) -> Park | Retry:
    error = failure.error
    return Park() if isinstance(error, WebhookError) and error.is_final else Retry()


def _key(secret: object, where: str) -> bytes:
    try:
        if not isinstance(secret, str) or not secret.startswith(PREFIX):
            raise ValueError
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (ValueError, binascii.Error):
        # Without the secret, and without the error that may quote it.
        raise ConfigError(f"{where}.secret must be `{PREFIX}` followed by base64") from None
