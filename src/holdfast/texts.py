"""Texts of others, such as error messages: without secrets, cut, and safe for a terminal."""

from __future__ import annotations

import re

_WORDS = ("password", "passwd", "passphrase", "passfile", "pwd", "secret", "credential", "token")
_OWNERS = ("api", "access", "private", "client", "server", "signing", "encryption")
_KEYS = tuple(f"{owner}{joint}key" for owner in _OWNERS for joint in ("_", "-", ""))

SECRET_NAME = f"(?:{'|'.join(_WORDS)}|(?:{'|'.join(_OWNERS)})[_-]?key)(?!s)"
"""The part of a name that tells that its value is secret, such as of oauth_client_secret."""

MAX_READ_CHARACTERS = 100_000
"""Maximum of a text that is searched for secrets; of a longer one only both ends are."""

# A handler's error may quote a payload, which others have written. So each pattern takes a time
# that is linear in the text: its parts are possessive or bounded.
_WITH_AT = re.compile(r"(?<!\S)[^\s@]*+@\S*+")
_USER = re.compile(r"(?:://[^/:@]*+|\b\w++):(?!//)")
_NAMED = re.compile(
    rf"({SECRET_NAME}[\w.-]{{0,20}}+"
    r"(?:['\"]?\s{0,3}=\s{0,3}|['\"]\s{0,3}:\s{0,3}|\s{1,3}(?=')))"
    r"(?:'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|['\"]?[^\s&'\"]++)",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(
    r"(authorization\W{1,6}(?:basic|bearer|digest|token)\s{1,3})[^\s'\"]++", re.IGNORECASE
)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")


def redacted(text: str) -> str:
    """The text without passwords: an error quotes URLs, settings and lines of the user's code."""
    if "@" in text:
        text = _WITH_AT.sub(_without_password, text)
    lowered = text.lower()
    if any(word in lowered for word in (*_WORDS, *_KEYS)):  # Much cheaper than the pattern.
        text = _NAMED.sub(r"\1***", text)
    if "authorization" in lowered:
        text = _AUTHORIZATION.sub(r"\1***", text)
    return text


def clean(text: str, max_characters: int) -> str:
    """The text as it is stored and logged: without secrets, and cut in the middle if too long.

    Every database can store it.
    """
    left_out = max(0, len(text) - MAX_READ_CHARACTERS)
    if left_out:
        half = MAX_READ_CHARACTERS // 2
        text = text[:half] + text[-half:]
    text = redacted(text).replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
    if len(text) <= max_characters:
        return text
    left_out += len(text) - max_characters
    head, tail = max_characters // 4, max_characters - max_characters // 4
    return f"{text[:head]}\n… {left_out:,} characters left out …\n{text[-tail:]}"


def shown(text: str) -> str:
    """The text on one line, with characters escaped that a terminal obeys or hides."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_lines(text: str) -> str:
    """As `shown`, with the text's own lines."""
    return text if text.isprintable() else "\n".join(map(shown, text.split("\n")))


def shown_json(document: str) -> str:
    """A JSON document with the same characters escaped as JSON does it: the values are the same.

    Those of ASCII are escaped already, or stand between its tokens.
    """
    return document if document.isprintable() else _BEYOND_ASCII.sub(_escaped, document)


def _without_password(found: re.Match[str]) -> str:
    text = found[0]
    end = text.rfind("@")
    user = _USER.search(text, 0, end)
    return text if user is None else f"{text[: user.end()]}***{text[end:]}"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
