"""Limits of the runtime as a test wants them: for one app, or for all that are made from now on."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast import App
from holdfast import assembly as module
from holdfast.runtime.limits import LIMITS


def set_limits(app: App, **limits: Any) -> None:
    """Replaces limits of an app, for runners that start from now on."""
    app._limits = replace(app._limits, **limits)


def small_batches(app: App, events: int) -> None:
    """Has few events read and committed at a time."""
    set_limits(app, chunk_events=events, batch_events=events, fold_events=50 * events)


def use_limits(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Replaces limits of the apps that are made from now on."""
    monkeypatch.setattr(module, "LIMITS", replace(LIMITS, **limits))
