"""Fixtures for workers whose events fail as files say."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.world.app import STREAM_KINDS, Name
from tests.world.spoilt import Spoilt
from tests.world.wanted import Limits, Wanted


@pytest.fixture
def spoilt(tmp_path: Path) -> Spoilt:
    folder = tmp_path / "spoilt"
    folder.mkdir()
    return Spoilt(folder)


@pytest.fixture
def lanes(store_url: str, kind: Name, spoilt: Spoilt) -> Wanted:
    """A worker that parks and drains."""
    return spoilt.wanted(store_url, kind)


@pytest.fixture(params=STREAM_KINDS)
def outbox_kind(request: pytest.FixtureRequest) -> Name:
    kind: Name = request.param
    return kind


@pytest.fixture
def outbox(store_url: str, outbox_kind: Name, spoilt: Spoilt) -> Wanted:
    """A worker that delivers from the outbox, with short leases."""
    wanted = spoilt.wanted(store_url, outbox_kind)
    return replace(wanted, concurrency=4, limits=Limits(lease_seconds=0.3))
