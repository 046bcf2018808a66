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
    # A leader on another host can't be asked.
    return not _is_here(checkpoint.leader) or is_gone(checkpoint.leader)


def is_gone(name: str) -> bool:
    """Whether the process of this name has ended; False where this host can't know."""
    if not _is_here(name):
        return False
    _, pid, process = (*name.split(":"), "")[:3]
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


def shown_name(name: str) -> str:
    """Host and process id, for people."""
    return ":".join(name.split(":")[:2])


def _is_here(name: str) -> bool:
    host, pid, *_ = (*name.split(":"), "")
    return host == socket.gethostname() and pid.isdigit()


def _mark() -> str:
    """Tells this process from an earlier one with the same number; a forked child has its own."""
    return _marks.setdefault(os.getpid(), uuid4().hex[:8])
