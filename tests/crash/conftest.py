"""Fixtures for workers whose events fail as files say."""

from pathlib import Path

import pytest

from tests.support import lanes_worker, outbox_worker
from tests.support.lanes import KIND, Kind
from tests.support.lanes_worker import Spoilt
from tests.support.outbox import OUTBOX_KINDS


@pytest.fixture
def spoilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spoilt:
    folder = tmp_path / "spoilt"
    folder.mkdir()
    monkeypatch.setenv(lanes_worker.SPOILT, str(folder))
    return Spoilt(folder)


@pytest.fixture(params=OUTBOX_KINDS)
def outbox_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """Workers deliver this projection from the outbox, and their leases are short."""
    kind: Kind = request.param
    monkeypatch.setenv(KIND, kind)
    monkeypatch.setenv(outbox_worker.CONCURRENCY, "4")
    monkeypatch.setenv(outbox_worker.LEASE_SECONDS, "0.3")
    return kind
