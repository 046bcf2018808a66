"""Database URLs: what they mean, and how to show them without their password."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote_plus, unquote, urlencode, urlsplit, urlunsplit

from holdfast.core.errors import ConfigError

HINT = "use sqlite:///path/to/file.db, sqlite:///:memory:, or postgresql://user@host/database"
_SECRET_PARAMETERS = {"password", "sslpassword", "passfile"}


@dataclass(frozen=True, slots=True)
class SqliteUrl:
    """A file, or None for a database in memory."""

    path: Path | None

    def __str__(self) -> str:
        return f"sqlite:///{self.path or ':memory:'}"


@dataclass(frozen=True, slots=True, repr=False)
class PostgresUrl:
    """A libpq connection URI. Shown without its password, always."""

    uri: str

    def __str__(self) -> str:
        return redacted(self.uri)

    __repr__ = __str__

    def hide(self, message: str) -> str:
        """The message without any secret of this URL, whatever the driver put into it."""
        for secret in _secrets(self.uri):
            message = message.replace(secret, "***")
        return message


def parse_url(url: object) -> SqliteUrl | PostgresUrl:
    """Reads a database URL, or raises a ConfigError that shows no secret."""
    if not isinstance(url, str) or not url:
        raise ConfigError(f"the database URL is {type(url).__name__} {url!r}; {HINT}")
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return _sqlite(url)
    if scheme in ("postgresql", "postgres") and "://" in url:
        return PostgresUrl(url)
    if scheme.startswith(("postgresql+", "sqlite+")):
        raise ConfigError(f"URL scheme {scheme!r} names another library's driver; {HINT}")
    raise ConfigError(f"can't read the database URL {redacted(url)!r}; {HINT}")


def redacted(url: str) -> str:
    """The URL with every secret replaced."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return f"{url.partition(':')[0]}://***"
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        netloc = f"{name}{':***' if colon else ''}@{host}"
    shown = [(k, "***" if k.lower() in _SECRET_PARAMETERS else v) for k, v in query]
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(shown, safe="*/")))


def _secrets(uri: str) -> set[str]:
    try:
        parts = urlsplit(uri)
        found = [v for k, v in parse_qsl(parts.query) if k.lower() in _SECRET_PARAMETERS]
        user = parts.netloc.rpartition("@")[0]
    except ValueError:
        return {uri}
    if ":" in user:
        found.append(user.partition(":")[2])
    return {form for s in found if s for form in (s, unquote(s), quote_plus(s))} | {uri}


def _sqlite(url: str) -> SqliteUrl:
    prefix, path = "sqlite://", url[len("sqlite://") :]
    if not url.lower().startswith(prefix) or (path and not path.startswith("/")):
        raise ConfigError(f"can't read the database URL {url!r}; {HINT}")
    path = unquote(path[1:])
    if path in ("", ":memory:"):
        return SqliteUrl(None)
    if "?" in path or "\0" in path:
        raise ConfigError(f"the database URL {url!r} has parameters, which SQLite doesn't take")
    return SqliteUrl(Path(path))
