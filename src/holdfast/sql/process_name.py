"""The names of processes in checkpoints: who leads, and whether that process has died."""

from __future__ import annotations

import os
import socket
from uuid import uuid4

from holdfast.runtime.store.checkpoint import Checkpoint

_marks: dict[int, str] = {}


def process_name() -> str:
    """A name that no other process has ever had."""
    return f"{socket.gethostname()}:{os.getpid()}:{_mark()}"


def has_died(checkpoint: Checkpoint) -> bool:
    """Whether the last leader died without releasing, as far as this host can know."""
    if checkpoint.state != "running" or checkpoint.leader is None:
        return False
    host, pid, process = (*checkpoint.leader.split(":"), "", "")[:3]
    if host != socket.gethostname() or not pid.isdigit():
        return True  # Its host is another one.
    if int(pid) == os.getpid():
        # In a container every process may have the same number.
        return process != _mark()
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _mark() -> str:
    """Tells this process from an earlier one with the same number; a forked child has its own."""
    return _marks.setdefault(os.getpid(), uuid4().hex[:8])
