"""Rights that a role lacks, told with the GRANT that gives them."""

from __future__ import annotations

import re

import psycopg

from holdfast.errors import ConfigError
from holdfast.sql.database import quote

_DENIED = re.compile(r"permission denied for (\w+) (.+)")
_TERMINATE = re.compile("permission denied to terminate")

_RIGHTS = {
    "schema": "USAGE, CREATE ON SCHEMA {}",
    "table": "SELECT, INSERT, UPDATE, DELETE ON TABLE {}",
    "view": "SELECT ON TABLE {}",
    "sequence": "USAGE, SELECT, UPDATE ON SEQUENCE {}",
    "function": "EXECUTE ON FUNCTION {}",
}
"""What our statements need, by the kind of object that the server names."""

ADVICE = "Deploy workers, in the docs, lists the rights that a role needs"


def missing_right(error: psycopg.Error, role: str | None) -> ConfigError:
    """The error of a role that may not do something. `role`: as the URL names it."""
    text = error.diag.message_primary or str(error)
    grantee = quote(role) if role else "<role>"
    if isinstance(error, psycopg.errors.InvalidSchemaName):  # Of its path, it sees none.
        right = _RIGHTS["schema"].format("public")
        return ConfigError(f"{text}; an owner can: GRANT {right} TO {grantee}; {ADVICE}")
    if _TERMINATE.match(text):
        return ConfigError(f"{text}; an owner can: GRANT pg_signal_backend TO {grantee};")
    denied = _DENIED.fullmatch(text)
    if denied is None or denied[1] not in _RIGHTS:
        return ConfigError(f"{text}. {ADVICE}")
    right = _RIGHTS[denied[1]].format(quote(denied[2]))
    return ConfigError(f"{text}; its owner can: GRANT {right} TO {grantee}; {ADVICE}")
