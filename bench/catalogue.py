"""All cases there are, in the order they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from bench.case import Case, Scale
from bench.cases import (
    appends,
    claims,
    growth,
    hand_written,
    holdfast,
    kafka,
    latency,
    many,
    outbox,
    parked,
    poison,
    processes,
    retrying,
    slow,
)

# A peer's module can only be imported where the peer is installed.
PEERS = ("eventsource_py", "eventsourcing")
# What is compared runs side by side, in this order.
GROUPS = (
    "catch-up/postgres",
    "catch-up/sqlite",
    "append/1",
    "append/10",
    "latency/postgres",
    "many/postgres",
    "processes/postgres",
    "processes/sqlite",
    "parked-batch/postgres",
    "parked-batch/sqlite",
    "parked-live/postgres",
    "parked-live/sqlite",
    "retrying/postgres",
    "retrying/sqlite",
    "poison-table/postgres",
    "poison-table/sqlite",
    "poison-handlers/postgres",
    "poison-handlers/sqlite",
    "drain/postgres",
    "drain/sqlite",
    "slow/postgres",
    "slow/sqlite",
    "claim/due",
    "claim/closed",
    "kafka/postgres",
    "kafka/sqlite",
    "growth/postgres",
    "growth/sqlite",
)
BY_NAME = ("poison-table", "poison-handlers", "drain", "slow", "claim", "kafka", "growth")
"""What only runs when it is asked for: together it takes twice as long as all the rest."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The cases that can run here, and a sentence for each peer whose cases cannot."""

    cases: Sequence[Case]
    missing: Sequence[str]

    def select(self, names: Sequence[str]) -> Sequence[Case]:
        """The cases with these names, or whose names begin with these groups.

        Without any name, all but those that must be named.
        """
        if not names:
            return [case for case in self.cases if not _belongs(case, BY_NAME)]
        return [case for case in self.cases if _belongs(case, names)]


def catalogue(scale: Scale) -> Catalogue:
    cases = [
        *holdfast.cases(scale),
        *hand_written.cases(scale),
        *appends.cases(scale),
        *latency.cases(scale),
        *many.cases(scale),
        *processes.cases(scale),
        *poison.cases(scale),
        *parked.cases(scale),
        *retrying.cases(scale),
        *outbox.cases(scale),
        *slow.cases(scale),
        *claims.cases(scale),
        *kafka.cases(scale),
        *growth.cases(scale),
    ]
    missing = []
    for peer in PEERS:
        try:
            cases += import_module(f"bench.cases.{peer}").cases(scale)
        except ImportError as error:
            missing.append(
                f"{peer.replace('_', '-')} is left out: {error}."
                " Install the extra `bench` to compare with it: pip install --editable '.[bench]'"
            )
    return Catalogue(sorted(cases, key=lambda case: GROUPS.index(case.group)), missing)


def _belongs(case: Case, names: Sequence[str]) -> bool:
    """Whether the case has one of the names, or is in one of the groups."""
    return any(f"{case.name}/".startswith(f"{name}/") for name in names)
