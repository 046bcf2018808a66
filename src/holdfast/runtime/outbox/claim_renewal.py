"""Renews claims while their events are tried, however long that takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress

from holdfast.runtime.store.claims import LEASE_SECONDS

Renew = Callable[[Collection[str]], None]


class ClaimRenewer:
    """A thread that renews the claims under some tokens; it ends when there are none."""

    def __init__(self, renew: Renew) -> None:
        self._renew = renew
        self._tokens: set[str] = set()
        self._changed = threading.Condition()
        self._is_running = False

    @contextmanager
    def renewing(self, token: str) -> Iterator[None]:
        """Renews the claims under a token until the block ends."""
        with self._changed:
            self._tokens.add(token)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="holdfast renewer", daemon=True).start()
        try:
            yield
        finally:
            with self._changed:
                self._tokens.discard(token)
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._tokens, LEASE_SECONDS / 3)
                if not self._tokens:
                    self._is_running = False
                    return
                tokens = list(self._tokens)
            # If it fails now, the next time may still be soon enough.
            with suppress(Exception):
                self._renew(tokens)
