"""Settings of projections that operators override while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.definition import Definition
from holdfast.sql.database import Connection, Database
from holdfast.sql.store.audit import ChangedBy
from holdfast.sql.store.operator_transaction import operator_transactions
from holdfast.sql.values import as_json, moment


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """A value that an operator has set in place of the code's, and when, by whom and why."""

    value: Any
    at: datetime
    by: str
    note: str | None = None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that can be changed while a projection runs. `value` counts now."""

    name: str
    value: Any
    code_value: Any
    override: Override | None = None


def read_overrides(
    connection: Connection, projection: str | None = None
) -> dict[str, dict[str, Override]]:
    """The overrides of one projection, or of all."""
    found: dict[str, dict[str, Override]] = {}
    for whose, name, value, at, by, note in connection.run(
        "read_settings", {"projection": projection}
    ):
        since = moment(at)
        assert since is not None
        override = Override(value=msgspec.json.decode(value), at=since, by=by, note=note)
        found.setdefault(whose, {})[name] = override
    return found


def read_settings(database: Database | None, definition: Definition) -> list[Setting]:
    """The settings of a projection that can be changed, as they count now, or as in the code."""
    overrides: Mapping[str, Override] = {}
    if database is not None:
        with database.reading() as connection:
            overrides = read_overrides(connection, definition.name).get(definition.name, {})
    declared = definition.tuning.declared
    values = {name: override.value for name, override in overrides.items()}
    now = declared.with_overrides(values).values()
    return [
        Setting(name=name, value=now[name], code_value=value, override=overrides.get(name))
        for name, value in declared.values().items()
    ]


def override(
    database: Database, definition: Definition, values: Mapping[str, Any], change: ChangedBy
) -> None:
    """Sets values in place of the code's, for all processes that run the projection."""
    name = definition.name
    for attempt in operator_transactions(database):
        with attempt as connection:
            before = _lock(connection, name)
            definition.tuning.check(before | dict(values))
            for setting, value in values.items():
                names = {"projection": name, "name": setting, "value": as_json(value)}
                why = {"at": change.at, "by": change.by, "note": change.note}
                connection.run("write_setting", names | why)
            old = {setting: before[setting] for setting in values if setting in before}
            change.write(connection, "set", name, {"values": dict(values), "before": old})
    database.announce()


def drop_overrides(
    database: Database, definition: Definition, names: Sequence[str] | None, change: ChangedBy
) -> list[str]:
    """Has the code's values count again; returns the names of those that had not."""
    name = definition.name
    for attempt in operator_transactions(database):
        with attempt as connection:
            before = _lock(connection, name)
            for wanted in names or ():
                if wanted not in before and wanted not in definition.tuning.declared.values():
                    raise ConfigError(f"there is no setting {wanted!r} of projection {name!r}")
            dropped = [setting for setting in before if names is None or setting in names]
            for setting in dropped:
                connection.run("delete_setting", {"projection": name, "name": setting})
            if dropped:
                old = {setting: before[setting] for setting in dropped}
                change.write(connection, "unset", name, {"before": old})
    database.announce()
    return dropped


def _lock(connection: Connection, projection: str) -> dict[str, Any]:
    """The overrides; every worker of the projection looks again after this transaction."""
    for _, _, _, _, feed, *_ in connection.run("checkpoints_of", {"projection": projection}):
        connection.run("bump_revision", {"projection": projection, "feed": feed})
    found = read_overrides(connection, projection).get(projection, {})
    return {name: setting.value for name, setting in found.items()}
