"""Database URLs: what is read, and that no secret is shown, in whatever shape it comes."""

import pytest

from holdfast import ConfigError
from holdfast.sql.url import PostgresUrl, SqliteUrl, parse_url, redacted

SHOWN = {
    "postgresql://host/db": "postgresql://host/db",
    "postgresql://me@host:5432/db": "postgresql://me@host:5432/db",
    "postgresql://me:secret@host/db": "postgresql://me:***@host/db",
    "postgresql://:secret@host/db": "postgresql://:***@host/db",
    "postgresql://me:sec%20ret@host/db": "postgresql://me:***@host/db",
    "postgresql://me:sec/ret@host/db": "postgresql://me:***@host/db",
    "postgresql://me:sec#ret@host/db": "postgresql://me:***@host/db",
    "postgresql://me:sec?ret@host/db": "postgresql://me:***@host/db",
    "postgresql://me:sec@ret@host/db": "postgresql://me:***@host/db",
    "postgresql://me:s@c/ret@host/db": "postgresql://me:***@host/db",
    "postgresql://me:sec[ret@host/db": "postgresql://me:***@host/db",
    "postgresql://h/db?user=me&password=secret": "postgresql://h/db?user=me&password=***",
    "postgresql://h/db?PASSWORD=secret&a=b": "postgresql://h/db?PASSWORD=***&a=b",
    "postgresql://h/db?sslpassword=secret": "postgresql://h/db?sslpassword=***",
    "postgresql://h/db?passfile=/secret": "postgresql://h/db?passfile=***",
    "postgresql://h/db?oauth_client_secret=se": "postgresql://h/db?oauth_client_secret=***",
    "postgresql://h/db?scram_client_key=se&a=b": "postgresql://h/db?scram_client_key=***&a=b",
    "postgresql://h/db?sslkey=/file&a=b": "postgresql://h/db?sslkey=/file&a=b",
    "me:secret@host/db": "me:***@host/db",
    "mysql://me:secret@host/db": "mysql://me:***@host/db",
}


@pytest.mark.parametrize("url", SHOWN)
def test_secrets_are_replaced(url: str) -> None:
    assert redacted(url) == SHOWN[url]


@pytest.mark.parametrize("url", [url for url in SHOWN if url.startswith("postgresql://")])
def test_neither_str_nor_repr_shows_a_secret(url: str) -> None:
    parsed = PostgresUrl(url)
    assert str(parsed) == repr(parsed) == SHOWN[url]


def test_messages_of_the_driver_are_cleared_of_secrets() -> None:
    url = PostgresUrl("postgresql://me:p%40ss%20w@host/db?sslpassword=other")
    message = "no p@ss w, no p%40ss%20w, no other, no postgresql://me:p%40ss%20w@host/db"
    cleared = url.hide(message)
    assert not any(secret in cleared for secret in ("p@ss w", "p%40ss%20w", "other"))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///bank.db", "bank.db"),
        ("sqlite:////var/bank.db", "/var/bank.db"),
        ("sqlite:///with%20space.db", "with space.db"),
        ("SQLITE:///bank.db", "bank.db"),
    ],
)
def test_sqlite_files(url: str, path: str) -> None:
    parsed = parse_url(url)
    assert isinstance(parsed, SqliteUrl)
    assert str(parsed.path) == path


def test_sqlite_in_memory() -> None:
    assert parse_url("sqlite:///:memory:") == SqliteUrl(None)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///"])
def test_memory_has_to_be_asked_for(url: str) -> None:
    with pytest.raises(ConfigError, match=r"names no file; use .*sqlite:///:memory:"):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "", None, 5, b"sqlite:///x", "bank.db", "sqlite://bank.db", "sqlite:bank.db",
        "sqlite:///x.db?mode=ro", "postgresql:host", "postgresql+asyncpg://h/d", "mysql://h/d",
    ],
)  # fmt: skip
def test_what_is_no_url_of_ours_is_refused(url: object) -> None:
    with pytest.raises(ConfigError):
        parse_url(url)


def test_a_url_of_another_type_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"^the database URL is a bytes, not a str") as refused:
        parse_url(b"postgresql://me:secret@host/db")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "password",
    [
        "sec@ret", "sec/ret", "sec?ret", "s@c/ret", "s@c?ret", "sec/r:et", "s@c:r/et", "sec?r=et",
    ],
)  # fmt: skip
def test_a_password_that_is_not_quoted_is_refused_with_the_way_to_quote_it(password: str) -> None:
    with pytest.raises(ConfigError, match="write @ as %40"):
        parse_url(f"postgresql://me:{password}@host/db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:54a2/db", "postgresql://me:***@host:***/db"),
        ("postgresql://host:port", "postgresql://host:***"),
        ("postgresql://me:secret/db", "postgresql://me:***/db"),
        ("postgresql://me@[::1]:x/db?a=b", "postgresql://me@[::1]:***/db?a=b"),
        ("postgresql://a:1,b:-2/db?password=secret", "postgresql://a:1,b:***/db?password=***"),
    ],
)
def test_a_port_that_is_no_number_is_said_to_be_none(url: str, shown: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_url(url)
    assert str(refused.value) == f"the port in the database URL {shown!r} is not a number"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///db",
        "postgresql://host:5432,other:5433/db?target_session_attrs=any",
        "postgresql://me:p%40ss@[::1]:5432/db",
        "postgresql://[::1]/db?application_name=a@b",
        "postgresql://me@%2Fvar%2Frun/db",
        "postgres://me:@host",
        "POSTGRESQL://me:sec#r:et@host/db",
    ],
)
def test_urls_that_the_driver_takes_are_taken(url: str) -> None:
    assert parse_url(url) == PostgresUrl(url)
