"""Operators and functions in `public` that are a better match than the server's own.

Everybody who may create objects in a schema of the search path can plant such traps: PostgreSQL
prefers an operator or function whose argument types are exactly those of the call to one of its
own that needs a conversion, or takes any type (CVE-2018-1058). A statement that falls into one runs
code of another user. These raise an error.
"""

from collections.abc import Sequence
from itertools import product

import psycopg

TYPES = [
    *("smallint", "integer", "bigint", "numeric", "double precision", "boolean", "oid"),
    *("regclass", "name", "text", "character varying", "uuid", "json", "jsonb", "interval"),
    *("timestamp with time zone", "text[]", "bigint[]", "integer[]"),
]
COMPARING = ["=", "<>", "<", ">", "<=", ">=", "~~"]
COMPUTING = ["+", "-", "*", "/", "%", "&", "|", "<<", ">>", "||", "->", "->>"]
OPERATORS = {"compare": COMPARING, "compute": COMPUTING}

FUNCTIONS = {
    1: [
        *("array_agg", "cardinality", "count", "json_agg", "max", "min", "sum", "unnest"),
        *("json_array_elements", "json_array_elements_text", "hashtext", "to_regclass"),
        *("pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_lock"),
        *("pg_advisory_unlock", "pg_blocking_pids", "pg_terminate_backend", "make_interval"),
        *("pg_sequence_last_value", "nextval", "current_setting"),
    ],
    2: [
        *("pg_advisory_xact_lock", "pg_try_advisory_lock", "pg_advisory_unlock"),
        *("setval", "current_setting", "date_part", "extract"),
    ],
}
"""By the number of their arguments: those that our statements call."""


def plant(url: str) -> None:
    """Plants the traps in `public` of this database, where the server has nothing as exact."""
    with psycopg.connect(url, autocommit=True) as connection:
        known = {row[0] for row in connection.execute(KNOWN)}
        pairs = [*product(TYPES, repeat=2)]
        traps = [_function("compare", pair, "boolean") for pair in pairs]
        traps += [_function("compute", pair, pair[0]) for pair in pairs]
        traps += [
            f"CREATE OPERATOR public.{name} "
            f"(FUNCTION = {kind}, LEFTARG = {left}, RIGHTARG = {right})"
            for kind, names in OPERATORS.items()
            for name in names
            for left, right in pairs
            if f"{name}({left},{right})" not in known
        ]
        traps += [
            _function(name, arguments, arguments[0])
            for count, names in FUNCTIONS.items()
            for name in names
            for arguments in product(TYPES, repeat=count)
            if f"{name}({','.join(arguments)})" not in known
        ]
        connection.execute(";".join(traps), prepare=False)


KNOWN = """
    SELECT oprname || '(' || format_type(oprleft, NULL) || ',' || format_type(oprright, NULL) || ')'
    FROM pg_operator
    UNION ALL
    SELECT proname || '(' || coalesce(a.names, '') || ')' FROM pg_proc
    LEFT JOIN LATERAL (
        SELECT string_agg(format_type(t, NULL), ',' ORDER BY n) AS names
        FROM unnest(proargtypes::oid[]) WITH ORDINALITY AS u (t, n)
    ) AS a ON true
"""


def _function(name: str, arguments: Sequence[str], returned: str) -> str:
    shown = f"{name}({', '.join(arguments)})"
    return (
        f"CREATE FUNCTION public.{shown} RETURNS {returned} LANGUAGE plpgsql "
        f"AS $$BEGIN RAISE 'trapped by {shown}'; END$$"
    )
