"""Database URLs: what they mean, and how to show them without their password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_plus, unquote

from holdfast.core.errors import ConfigError

HINT = "use sqlite:///path/to/file.db, sqlite:///:memory:, or postgresql://user@host/database"
_SECRET_PARAMETER = re.compile(r"([?&](?:password|sslpassword|passfile)=)([^&]*)", re.IGNORECASE)


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
    if not isinstance(url, str):
        raise ConfigError(f"the database URL is a {type(url).__name__}, not a str; {HINT}")
    if not url:
        raise ConfigError(f"the database URL is empty; {HINT}")
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return _sqlite(url)
    if scheme in ("postgresql", "postgres") and "://" in url:
        return PostgresUrl(url)
    if scheme.startswith(("postgresql+", "sqlite+")):
        raise ConfigError(f"URL scheme {scheme!r} names another library's driver; {HINT}")
    raise ConfigError(f"can't read the database URL {redacted(url)!r}; {HINT}")


def redacted(url: str) -> str:
    """The URL with every secret replaced, also where it is no proper URL."""
    start, end = _password(url)
    shown = f"{url[:start]}***{url[end:]}" if end > start else url
    return _SECRET_PARAMETER.sub(r"\1***", shown)


def _secrets(uri: str) -> set[str]:
    start, end = _password(uri)
    found = [uri[start:end], *(match[2] for match in _SECRET_PARAMETER.finditer(uri))]
    return {form for s in found if s for form in (s, unquote(s), quote_plus(s))} | {uri}


def _password(url: str) -> tuple[int, int]:
    """Where the password is: up to the last @, as one with / # ? or @ in it may not be quoted."""
    start = url.find("://") + 3 if "://" in url else 0
    end = url.rfind("@")
    colon = url.find(":", start, max(start, end))
    return (colon + 1, end) if colon >= 0 else (0, 0)


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
