"""What each decision does to a failing event, its lane, and everything else."""

from __future__ import annotations

from holdfast.testing.contracts.decisions import DecisionContract
from holdfast.testing.contracts.lanes import LaneContract
from holdfast.testing.contracts.parking import ParkingContract
from holdfast.testing.contracts.policies import PolicyContract


class FailureContract(ParkingContract, DecisionContract, PolicyContract, LaneContract):
    """Needs a fixture `app`: an App on an empty database; `placeholder` is the driver's own."""
