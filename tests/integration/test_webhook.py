"""The webhook sink against a real HTTP server, with signatures checked by another library."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pydantic
import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from holdfast import App, Backoff, ConfigError, Policy, Retry
from holdfast.webhook import Webhook, WebhookError
from tests.support.postgres import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEXT_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@dataclass
class Receiver:
    """What was posted, as headers and body, and what is answered."""

    port: int
    posted: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    answer: bytes = b"not today"
    drips: bool = False

    @property
    def url(self) -> str:
        return f"http://user:hush@127.0.0.1:{self.port}/hook?token=hush"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.posted.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = found.statuses.pop(0) if found.statuses else 204
            self.send_response(status)
            if status == 302:
                self.send_header("location", "/elsewhere")
            answer = b"" if status == 204 else found.answer
            self.send_header("content-length", str(10**9 if found.drips else len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            while found.drips:
                try:
                    self.wfile.write(b".")
                except OSError:
                    return

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        yield app


@pytest.fixture
def register(app: App, receiver: Receiver) -> Callable[..., None]:
    def register(*, secrets: Any = SECRET, policy: Policy | None = None) -> None:
        @app.sink(policy=policy)
        class Billing(Webhook):
            url = receiver.url
            secret = secrets
            topics = ("orders",)
            timeout_seconds = 5.0

    return register


def test_messages_are_posted_and_signed(
    app: App, receiver: Receiver, register: Callable[..., None]
) -> None:
    register(secrets=[SECRET, NEXT_SECRET])
    sent = app.outbox.send("orders", {"total": 12, "name": "Zoë"}, key="order-1")
    app.catch_up()
    ((headers, body),) = receiver.posted
    for secret in (SECRET, NEXT_SECRET):
        Verifier(secret).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Verifier(SECRET).verify(body + b" ", headers)
    assert headers["webhook-id"] == str(sent)
    posted = json.loads(body)
    assert posted.pop("timestamp")
    assert posted == {"type": "orders", "key": "order-1", "data": {"total": 12, "name": "Zoë"}}
    assert not app.queue.list()


def test_a_message_that_is_not_accepted_is_posted_again_with_the_same_id(
    app: App, receiver: Receiver, register: Callable[..., None]
) -> None:
    again = Backoff(max_attempts=8, delay_seconds=0.001, max_delay_seconds=0.001)
    register(policy=Policy(on_error=Retry(), backoff=again))
    receiver.statuses += [503, 302, 429]
    sent = app.outbox.send("orders", {}, key="order-1")
    with app.running():
        wait_until(lambda: not app.queue.list(), 30, "the message to be taken")
    assert [headers["webhook-id"] for headers, _ in receiver.posted] == [str(sent)] * 4


@pytest.mark.parametrize(("status", "expected"), [(400, "dead"), (410, "dead"), (500, "failed")])
def test_the_policy_parks_what_the_receiver_refuses(
    app: App, receiver: Receiver, register: Callable[..., None], status: int, expected: str
) -> None:
    register(policy=Webhook.policy())
    receiver.statuses.append(status)
    app.outbox.send("orders", {}, key="order-1")
    app.catch_up()
    (item,) = app.queue.list()
    assert (item.status, item.error_type) == (expected, "WebhookError")
    assert item.error_message == f"http://127.0.0.1:{receiver.port} answered {status}: not today"


def test_secrets_are_in_no_error_and_no_log(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.sink()
    class Billing(Webhook):
        url = "http://user:hush@127.0.0.1:1/hush?token=hush"
        secret = SECRET
        topics = ("orders",)

    app.outbox.send("orders", {}, key="order-1")
    with caplog.at_level(logging.DEBUG):
        app.catch_up()
    (item,) = app.queue.list()
    assert item.error_message == "http://127.0.0.1:1 does not answer: ConnectionRefusedError"
    for text in (caplog.text, str(item), str(app.status()), repr(app)):
        assert "hush" not in text
        assert SECRET[6:] not in text


def test_a_response_that_quotes_the_url(
    app: App, receiver: Receiver, register: Callable[..., None]
) -> None:
    register(policy=Webhook.policy())
    receiver.statuses.append(404)
    receiver.answer = b"Cannot POST /hook?token=hush for user"
    app.outbox.send("orders", {}, key="order-1")
    app.catch_up()
    (item,) = app.queue.list()
    assert str(item.error_message).endswith("answered 404: Cannot POST /***?***=*** for ***")
    assert "hush" not in str(item)


@pytest.mark.parametrize("status", [200, 400])
def test_a_response_that_never_ends(
    app: App, receiver: Receiver, register: Callable[..., None], status: int
) -> None:
    """Its status counts; its text is read for no longer than a limit, if at all."""
    register(policy=Webhook.policy())
    receiver.statuses.append(status)
    receiver.drips = True
    app.outbox.send("orders", {}, key="order-1")
    app.catch_up(timeout_seconds=30)
    assert [item.status for item in app.queue.list()] == ([] if status == 200 else ["dead"])


def test_events_of_the_journal(app: App, receiver: Receiver) -> None:
    class Placed(pydantic.BaseModel):
        total: int

    @app.projection(delivery="outbox")
    class Partner(Webhook):
        url = receiver.url
        secret = SECRET
        topics: ClassVar = (Placed,)

        def body(self, event: Any) -> Any:
            return {"id": event.id, **super().body(event)}

    app.journal.append("order-1", [Placed(total=3)])
    app.catch_up()
    ((_, body),) = receiver.posted
    (event,) = app.journal.read()
    posted = json.loads(body)
    assert (posted["id"], posted["data"]) == (str(event.id), {"total": 3})


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"secret": SECRET}, "url must be"),
        ({"url": "ftp://example.org", "secret": SECRET}, "url must be"),
        ({"url": "http://127.0.0.1"}, "secret is missing"),
        ({"url": "http://127.0.0.1", "secret": "hush"}, "secret must be `whsec_`"),
        ({"url": "http://127.0.0.1", "secret": "whsec_hush!"}, "secret must be `whsec_`"),
    ],
)
def test_settings_are_checked(app: App, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        app.sink()(type("Billing", (Webhook,), {"topics": ("orders",), **attributes}))
    assert "hush" not in str(raised.value)


def test_no_topics(app: App) -> None:
    with pytest.raises(ConfigError, match="no handlers"):
        app.sink()(type("Billing", (Webhook,), {"url": "http://127.0.0.1", "secret": SECRET}))


def test_an_error_says_whether_it_is_final() -> None:
    finals = [status for status in range(200, 600) if WebhookError("", status=status).is_final]
    assert finals == [s for s in range(400, 500) if s not in (408, 409, 425, 429)]
    assert not WebhookError("").is_final
