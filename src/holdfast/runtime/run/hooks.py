"""Calls `started()` and `stopped()` of a projection, for clients that its handlers hold."""

from __future__ import annotations

import threading

from holdfast.model.projection import hook_of


class Hooks:
    """The hooks of one projection in one process, whose workers share the instance.

    `started()` is called before the first of them applies events, `stopped()` after the last one
    has ended.
    """

    def __init__(self, projection: object) -> None:
        self._started, self._stopped = (
            hook_of(projection, "started"),
            hook_of(projection, "stopped"),
        )
        self._calling = threading.Lock()
        self._users: set[int] = set()

    def use(self, worker: object) -> None:
        """A worker is about to apply events. What `started()` raises is raised, and tried again."""
        with self._calling:
            if not self._users and self._started is not None:
                self._started()
            self._users.add(id(worker))

    def leave(self, worker: object) -> None:
        """A worker has ended."""
        with self._calling:
            if id(worker) in self._users:
                self._users.discard(id(worker))
                if not self._users and self._stopped is not None:
                    self._stopped()
