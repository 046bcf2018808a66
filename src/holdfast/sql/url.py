"""Database URLs: parsed, and shown without their password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote_plus, unquote

from holdfast.errors import ConfigError
from holdfast.texts import SECRET_NAME

HINT = "use sqlite:///path/to/file.db, sqlite:///:memory:, or postgresql://user@host/database"
_SECRET_PARAMETER = re.compile(
    rf"((?:^|[?&\s])[\w.-]*{SECRET_NAME}[\w.-]*\s*=\s*)('(?:[^'\\]|\\.)*'|[^&]*)",
    re.IGNORECASE,
)
_HOST = r"(?:\[[^\]]*\]|[^]:[@/?,]*)(?::\d*)?"
_PROPER = re.compile(
    rf"[^:]*://(?:[^@/?]*@)?{_HOST}(?:,{_HOST})*(?:/[^@?]*)?(?:\?(?:[^=&@/]*=[^&]*(?:&|$))*)?"
)
_PARTS = re.compile(r"([^:]*://(?:[^@/?]*@)?)([^@/?]*)([/?][^@]*)?")
_WRONG_PORT = re.compile(r":(?!\d*(?:,|$))[^],:[]*(?=,|$)")


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
        for secret in sorted(_secrets(self.uri), key=len, reverse=True):
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
    if scheme in ("postgresql", "postgres") and url[len(scheme) :].startswith("://"):
        return _postgres(url)
    if scheme.startswith(("postgresql+", "sqlite+")):
        raise ConfigError(f"URL scheme {scheme!r} names another library's driver; {HINT}")
    raise ConfigError(f"can't read the database URL {redacted(url)!r}; {HINT}")


def redacted(url: str) -> str:
    """The URL with every secret replaced, even if it is malformed."""
    start, end = _password(url)
    shown = f"{url[:start]}***{url[end:]}" if end > start else url
    return _SECRET_PARAMETER.sub(r"\1***", shown)


def _secrets(uri: str) -> set[str]:
    start, end = _password(uri)
    found = [uri[start:end], *(match[2] for match in _SECRET_PARAMETER.finditer(uri))]
    # The driver may have cut a password that was not quoted into pieces.
    found += [piece for piece in re.split("[^%\\w]", uri[start:end]) if len(piece) > 2]
    return {form for s in found if s for form in (s, unquote(s), quote_plus(s))} | {uri}


def _password(url: str) -> tuple[int, int]:
    """The place of the password: up to the last @, since it may contain an unquoted / # ? or @."""
    scheme = re.match(r"[\w+.-]*://", url)
    start = scheme.end() if scheme else 0
    end = url.rfind("@")
    colon = url.find(":", start, max(start, end))
    return (colon + 1, end) if colon >= 0 else (0, 0)


def _postgres(url: str) -> PostgresUrl:
    """Refuses a password with a stray @ / or ?, whose parts the driver would take for a host."""
    if not _PROPER.fullmatch(url):
        if shown := _with_wrong_port(url):
            raise ConfigError(f"the port in the database URL {shown!r} is not a number")
        raise ConfigError(
            f"can't read the database URL {redacted(url)!r}; in user and password, write @ as %40, "
            "/ as %2F, ? as %3F, : as %3A and % as %25"
        )
    return PostgresUrl(url)


def _with_wrong_port(url: str) -> str | None:
    """The URL to show if all that is wrong with it is a port, which is not shown.

    Where the host was forgotten, the port is a password.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return None
    start, hosts, rest = parts[1], parts[2], parts[3] or ""
    if not _PROPER.fullmatch(start + _WRONG_PORT.sub(":0", hosts) + rest):
        return None
    return redacted(start + _WRONG_PORT.sub(":***", hosts) + rest)


def _sqlite(url: str) -> SqliteUrl:
    prefix, path = "sqlite://", url[len("sqlite://") :]
    if not url.lower().startswith(prefix) or (path and not path.startswith("/")):
        raise ConfigError(f"can't read the database URL {redacted(url)!r}; {HINT}")
    path = unquote(path[1:])
    if path == ":memory:":
        return SqliteUrl(None)
    if not path:  # From an unset variable: a database in memory would be lost with the process.
        raise ConfigError(f"the database URL {url!r} names no file; {HINT}")
    if "?" in path or "\0" in path:
        shown = redacted(url)
        raise ConfigError(f"the database URL {shown!r} has parameters, which SQLite doesn't take")
    return SqliteUrl(Path(path))
