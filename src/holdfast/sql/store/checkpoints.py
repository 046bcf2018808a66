"""Checkpoints as parameters of statements, and errors of a runner that has lost one."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Fenced, Revised
from holdfast.runtime.store.checkpoint import Checkpoint
from holdfast.sql.database import Connection


def of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The projection and the feed, for a statement."""
    return {"projection": checkpoint.projection, "feed": checkpoint.feed}


def changed(connection: Connection, checkpoint: Checkpoint) -> Exception:
    """The error of a runner whose checkpoint was changed: by an operator, or by another runner."""
    rows = connection.run("read_checkpoint", of(checkpoint))
    if rows:
        now = Checkpoint(*rows[0])
        is_ours = (now.id, now.epoch) == (checkpoint.id, checkpoint.epoch)
        if is_ours and now.revision != checkpoint.revision:
            return Revised(f"projection {checkpoint.projection!r} was changed by an operator")
    return fenced(checkpoint)


def fenced(checkpoint: Checkpoint) -> Fenced:
    """The error of a runner that was deposed."""
    return Fenced(
        f"projection {checkpoint.projection!r} on feed {checkpoint.feed!r} was taken over after "
        f"epoch {checkpoint.epoch}, position {checkpoint.position}; nothing was written"
    )
