"""What each decision does to a failing event, its lane, and everything else."""

from __future__ import annotations

from tests.contracts.decisions import DecisionContract
from tests.contracts.lanes import LaneContract
from tests.contracts.parking import ParkingContract
from tests.contracts.policies import PolicyContract


class FailureContract(ParkingContract, DecisionContract, PolicyContract, LaneContract):
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""
