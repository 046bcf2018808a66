"""The webhook sink against a real HTTP server, with signatures checked by another library."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pydantic
import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from holdfast import App, Backoff, ConfigError, Policy, Retry
from holdfast.http_post import is_private
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
    drips_headers: bool = False

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
            while found.drips_headers:
                self.flush_headers()
                self.send_header("x-patience", "please")
                time.sleep(0.01)
            if status == 302:
                self.send_header("location", "/elsewhere")
            answer = b"" if status == 204 else found.answer
            self.send_header("content-length", str(10**9 if found.drips else len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            while found.drips:
                self.wfile.write(b".")

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Webhooks may go to this machine, without TLS."""
    monkeypatch.setattr(Webhook, "allow_http", True)
    monkeypatch.setattr(Webhook, "allow_private", True)


@pytest.fixture
def app() -> Iterator[App]:
    with App("sqlite:///:memory:") as app:
        yield app


@pytest.fixture
def register(app: App, receiver: Receiver) -> Callable[..., type[Webhook]]:
    def register(
        *, secrets: Any = SECRET, policy: Policy | None = None, seconds: float = 5.0
    ) -> type[Webhook]:
        @app.sink(policy=policy)
        class Billing(Webhook):
            url = receiver.url
            secret = secrets
            topics = ("orders",)
            timeout_seconds = seconds

        return Billing

    return register


def test_messages_are_posted_and_signed(
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]]
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
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]]
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
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]], status: int, expected: str
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
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]]
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
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]], status: int
) -> None:
    """Its status counts; its text is read for no longer than a limit, if at all."""
    register(policy=Webhook.policy())
    receiver.statuses.append(status)
    receiver.drips = True
    app.outbox.send("orders", {}, key="order-1")
    app.catch_up(timeout_seconds=30)
    assert [item.status for item in app.queue.list()] == ([] if status == 200 else ["dead"])


def test_a_receiver_that_drips(
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]]
) -> None:
    """Each byte comes soon after the one before it, and the whole response never."""
    register(policy=Webhook.policy(), seconds=0.2)
    receiver.drips_headers = True
    app.outbox.send("orders", {}, key="order-1")
    app.catch_up(timeout_seconds=30)
    (item,) = app.queue.list()
    assert item.error_message == f"http://127.0.0.1:{receiver.port} does not answer: TimeoutError"


def test_a_name_that_leads_to_this_machine(
    app: App, receiver: Receiver, register: Callable[..., type[Webhook]]
) -> None:
    """What a host's name says is not known before it is looked up, so the address is checked."""
    register().allow_private = False
    app.outbox.send("orders", {}, key="order-1")
    app.catch_up()
    (item,) = app.queue.list()
    assert "in a private network; allow_private = True" in str(item.error_message)
    assert not receiver.posted


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("api.localhost.", True),
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("169.254.169.254", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("224.0.1.1", True),
        ("::1", True),
        ("fe80::1", True),
        ("fd00::1", True),
        ("::ffff:127.0.0.1", True),
        ("64:ff9b::7f00:1", True),
        ("2002:7f00:1::", True),
        ("8.8.8.8", False),
        ("2001:4860:4860::8888", False),
        ("example.org", False),
        ("192.0.0.192", True),
        ("::127.0.0.1", True),
        ("64:ff9b:1::1", True),
        ("fec0::1", True),
    ],
)
def test_addresses_that_are_private(host: str, expected: bool) -> None:
    assert is_private(host) is expected


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
        *(
            ({"url": url, "secret": SECRET}, "url must be")
            for url in (
                "ftp://example.org",
                "https://",
                "https://example.org:99999/",
                "https://example.org:0/",
                "https://example.org/with space",
                "https://exam\nple.org/",
                "https://example.org/hüsh",
                "https://example..org/hush",
                "https://exam%20ple.org/hush",
                "https://[::1/hush",
                17,
            )
        ),
        (
            {"url": "http://example.org/hush", "secret": SECRET, "allow_http": False},
            "say allow_http = True",
        ),
        *(
            ({"url": url, "secret": SECRET, "allow_private": False}, "say allow_private = True")
            for url in ("https://localhost/", "https://[fe80::1]/", "https://10.0.0.1/hush")
        ),
        ({"url": "http://127.0.0.1"}, "secret is missing"),
        ({"url": "http://127.0.0.1", "secret": "hush"}, "secret must be `whsec_`"),
        ({"url": "http://127.0.0.1", "secret": "whsec_hush!"}, "secret must be `whsec_`"),
        ({"url": "http://127.0.0.1", "secret": "whsec_"}, "has 0 bytes"),
        ({"url": "http://127.0.0.1", "secret": [SECRET, "whsec_aHVzaA=="]}, "has 4 bytes"),
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
