"""A sink that posts to a URL, signed.

Requests are signed as https://www.standardwebhooks.com specifies, so that receivers can check them
with a library. A message may come more than once: `webhook-id` is always the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any, ClassVar
from urllib.parse import unquote

import msgspec

from holdfast.errors import ConfigError, HoldfastError
from holdfast.http_post import PrivateAddress, is_private, parse, post
from holdfast.model import arguments
from holdfast.model.event import Event
from holdfast.model.event_types import payload_json
from holdfast.model.failure import Failure
from holdfast.model.policy import Park, Policy, Retry
from holdfast.model.projection import Projection, Tx, on

SECRET_PREFIX = "whsec_"
"""The beginning of a secret; base64 follows."""

MIN_SECRET_BYTES = 24
"""Minimum length of a secret, as Standard Webhooks asks."""

TEMPORARY_STATUSES = (408, 409, 425, 429)
"""Client errors that may pass: the message is tried again."""

MIN_TOKEN_CHARACTERS = 4
"""Minimum length of a part of the URL that counts as a secret."""

MAX_ERROR_CHARACTERS = 200
"""Maximum length of a response's text in the item's error."""


class WebhookError(HoldfastError):
    """A receiver did not accept a message. `status` is None if there was no response."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_final(self) -> bool:
        """Whether the receiver would refuse the same message again."""
        status = self.status
        return status is not None and 400 <= status < 500 and status not in TEMPORARY_STATUSES


class Webhook(Projection):
    """Posts messages to `url`. Register it with `@app.sink()`, or for events of the journal with
    `@app.projection(delivery="outbox")`.

    `topics` are the topics or event types that it posts. `secret` is `whsec_` and base64; give
    several while a receiver changes from one to the next. A response of 2xx is success. Redirects
    are not followed. `timeout_seconds` limits the whole request: connecting, sending, and waiting
    for the response.

    `allow_http` permits a URL without TLS. `allow_private` permits a host on this machine or in a
    private network. Both are for receivers of your own, and for tests.
    """

    url: ClassVar[str]
    secret: ClassVar[str | Sequence[str]]
    topics: ClassVar[Sequence[type | str]] = ()
    timeout_seconds: ClassVar[float] = 15.0
    allow_http: ClassVar[bool] = False
    allow_private: ClassVar[bool] = False
    calls_out: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.topics:

            def posted(self: Webhook, event: Event[Any], tx: Tx) -> None:  # noqa: ARG001
                self.post(event)

            cls.posted = on(*cls.topics)(posted)  # type: ignore[attr-defined]

    def __init__(self) -> None:
        where = type(self).__qualname__
        arguments.seconds(f"{where}.timeout_seconds", self.timeout_seconds)
        for name in ("allow_http", "allow_private"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"{where}.{name} is {getattr(self, name)!r}; it is True or False")
        try:
            self._address = address = parse(getattr(self, "url", None))
        except ValueError:
            # Without the URL, and without the error: they may show a token.
            raise ConfigError(
                f"{where}.url must be an http or https address with a host, in ASCII and without "
                "spaces: %C3%BC in a path, xn--… in a host"
            ) from None
        if address.scheme == "http" and not self.allow_http:
            raise ConfigError(
                f"{where}.url begins with http://, so that others could read what is posted; use "
                "https://, or say allow_http = True"
            )
        if not self.allow_private and is_private(address.hostname or ""):
            raise ConfigError(
                f"{where}.url is on this machine or in a private network; say allow_private = True "
                "if it should be"
            )
        self._receiver = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        secrets = getattr(self, "secret", ())
        self._keys = [
            _key(secret, where) for secret in ([secrets] if isinstance(secrets, str) else secrets)
        ]
        if not self._keys:
            raise ConfigError(
                f"{where}.secret is missing; it is `{SECRET_PREFIX}` and {MIN_SECRET_BYTES} or "
                "more random bytes in base64"
            )

    @classmethod
    def policy(cls) -> Policy:
        """Like `Policy.outbox()`, but a message that the receiver refuses is dead at once."""
        outbox = Policy.outbox()
        return Policy(on_error=_decide, backoff=outbox.backoff, exhausted=outbox.exhausted)

    def body(self, event: Event[Any]) -> Any:
        """The body of the request, which is encoded as JSON."""
        return {
            "type": event.type,
            "timestamp": event.recorded_at,
            "key": event.stream,
            "data": msgspec.Raw(payload_json(event.data)),
        }

    def post(self, event: Event[Any]) -> None:
        """Posts one message; raises WebhookError unless the receiver accepts it."""
        body = msgspec.json.encode(self.body(event))
        headers = {
            "content-type": "application/json",
            "user-agent": "holdfast",
            **signed_headers(self._keys, str(event.id), int(time.time()), body),
            **self._authorization(),
        }
        try:
            status, answer = post(
                self._address,
                body,
                headers,
                timeout_seconds=self.timeout_seconds,
                allow_private=self.allow_private,
            )
        except PrivateAddress:
            raise WebhookError(
                f"{self._receiver} is on this machine or in a private network; allow_private = "
                "True permits that"
            ) from None
        except (OSError, HTTPException) as error:
            # Without the error and its text: they may show the URL, with a token in it.
            kind = type(error).__name__
            raise WebhookError(f"{self._receiver} does not answer: {kind}") from None
        if not 200 <= status < 300:
            text = self._masked(answer.decode(errors="replace"))
            raise WebhookError(f"{self._receiver} answered {status}: {text}", status=status)

    def _authorization(self) -> dict[str, str]:
        address = self._address
        if address.username is None:
            return {}
        pair = f"{unquote(address.username)}:{unquote(address.password or '')}".encode()
        return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}

    def _masked(self, text: str) -> str:
        """The beginning of a response, with parts of the URL that it quotes masked."""
        address = self._address
        parts = [*address.path.split("/"), *re.split("[&=]", address.query)]
        for part in (*parts, address.username or "", address.password or ""):
            if len(part) >= MIN_TOKEN_CHARACTERS:
                text = text.replace(part, "***").replace(unquote(part), "***")
        return text[:MAX_ERROR_CHARACTERS]


def signed_headers(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove a body's origin, and when it was posted."""
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
        if not isinstance(secret, str) or not secret.startswith(SECRET_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        # Without the secret, and without the error, which may quote it.
        raise ConfigError(f"{where}.secret must be `{SECRET_PREFIX}` followed by base64") from None
    if len(key) < MIN_SECRET_BYTES:
        raise ConfigError(
            f"{where}.secret has {len(key)} bytes, and could be guessed; it must have "
            f"{MIN_SECRET_BYTES} or more, and be random"
        )
    return key
