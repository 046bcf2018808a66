"""What operators may change while a projection runs: its Poll, its Backoff, its concurrency.

The code's values are the defaults. Overrides are kept in the database, and workers take them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import ConfigError
from holdfast.model import arguments
from holdfast.model.backoff import Backoff
from holdfast.model.policy import Policy
from holdfast.model.poll import Poll

_PAUSES = ("delay_seconds", "multiplier", "max_delay_seconds", "step_seconds", "jitter")
_POLL = ("interval_seconds", "empty_backoff_seconds", "max_consecutive_failures", "wake")
_BACKOFF = ("max_attempts", *_PAUSES, "timeout_seconds")

POLL, FAILURE, BACKOFF, CONCURRENCY = "poll.", "poll.failure_backoff.", "backoff.", "concurrency"

NAMES = (
    *(POLL + name for name in _POLL),
    *(FAILURE + name for name in _PAUSES),
    *(BACKOFF + name for name in _BACKOFF),
    CONCURRENCY,
)
"""The names of settings that can be overridden."""

Overrides = Mapping[str, Any]
"""Values by the names of settings."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a projection that may change while it runs; `concurrency` is for an outbox."""

    poll: Poll
    policy: Policy
    policies: Mapping[str, Policy]
    concurrency: int | None = None

    def values(self) -> dict[str, Any]:
        """The values by name."""
        found = {POLL + name: getattr(self.poll, name) for name in _POLL}
        found |= {FAILURE + name: getattr(self.poll.failure_backoff, name) for name in _PAUSES}
        found |= {BACKOFF + name: getattr(self.policy.backoff, name) for name in _BACKOFF}
        return found if self.concurrency is None else found | {CONCURRENCY: self.concurrency}

    def with_overrides(self, overrides: Overrides) -> Settings:
        """The settings with other values; raises ConfigError if they make no sense."""
        poll = replace(self.poll, **_part(overrides, POLL, _POLL))
        pauses = _part(overrides, FAILURE, _PAUSES)
        poll = replace(poll, failure_backoff=changed(poll.failure_backoff, pauses))
        backoff = _part(overrides, BACKOFF, _BACKOFF)
        policies = {name: _with_backoff(policy, backoff) for name, policy in self.policies.items()}
        concurrency = self.concurrency
        if concurrency is not None and CONCURRENCY in overrides:
            concurrency = overrides[CONCURRENCY]
            arguments.concurrency(concurrency)
        return Settings(poll, _with_backoff(self.policy, backoff), policies, concurrency)


class Tuning:
    """The settings of a projection in this process: those of the code, with overrides."""

    def __init__(self, declared: Settings) -> None:
        self.declared = self.now = declared
        self.overrides: Overrides = {}
        self.has_time_limits = _has_time_limits(declared)
        """Whether any attempt is limited in time."""

    def check(self, overrides: Overrides) -> None:
        """Raises ConfigError if these can't be overridden, or not with these values."""
        known = self.declared.values()
        for name in overrides:
            if name in NAMES and name not in known:
                raise ConfigError(f"{name} is for outbox delivery and sinks")
            if name not in known:
                raise ConfigError(
                    f"there is no setting {name!r} to change; there are {', '.join(known)}"
                )
        self.declared.with_overrides(overrides)

    def apply(self, overrides: Overrides) -> None:
        """Takes overrides up."""
        if overrides != self.overrides:
            self.now, self.overrides = self.declared.with_overrides(overrides), overrides
            self.has_time_limits = _has_time_limits(self.now)

    def backoff_of(self, backoff: Backoff) -> Backoff:
        """A backoff that a decision names, with the overrides."""
        changes = _part(self.overrides, BACKOFF, _BACKOFF)
        changes.pop("timeout_seconds", None)  # Known before the decision.
        return changed(backoff, changes)


def _has_time_limits(settings: Settings) -> bool:
    policies = (settings.policy, *settings.policies.values())
    return any(policy.backoff.timeout_seconds is not None for policy in policies)


def changed(backoff: Backoff, changes: Mapping[str, Any]) -> Backoff:
    """A backoff with other values. Delay and limit that don't fit follow the one that is new."""
    if not changes:
        return backoff
    new = dict(changes)
    delay = new.get("delay_seconds", backoff.delay_seconds)
    longest = new.get("max_delay_seconds", backoff.max_delay_seconds)
    if _is_less(longest, delay):
        if "delay_seconds" not in new:
            new["delay_seconds"] = longest
        elif "max_delay_seconds" not in new:
            new["max_delay_seconds"] = delay
    if "delay_seconds" in changes:
        new["schedule"] = None  # It would compute another one.
    return replace(backoff, **new)


def _is_less(longest: Any, delay: Any) -> bool:
    are_numbers = isinstance(longest, int | float) and isinstance(delay, int | float)
    return are_numbers and longest < delay


def _with_backoff(policy: Policy, changes: Mapping[str, Any]) -> Policy:
    return replace(policy, backoff=changed(policy.backoff, changes)) if changes else policy


def _part(overrides: Overrides, prefix: str, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: prefix + name for name in names}
    return {name: overrides[full] for name, full in found.items() if full in overrides}
