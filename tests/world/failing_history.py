"""Events that are appended, spoilt and mended while workers come and go."""

import random
from collections.abc import Callable
from itertools import count

from holdfast import App
from tests.world.app import Moved
from tests.world.spoilt import Spoilt

BACKLOG_EVENTS = 60
FAILURES = ("park", "park", "park and soon", "park and soon", "skip", "retry, then park")


class FailingHistory:
    """`backlog`: how many events no worker has reached yet."""

    def __init__(
        self,
        app: App,
        spoilt: Spoilt,
        chance: random.Random,
        *,
        backlog: Callable[[], int],
        streams: int,
    ) -> None:
        self._app, self._spoilt, self._chance = app, spoilt, chance
        self._backlog, self._streams = backlog, streams
        self._numbers = count(1)
        self.go_on()

    def go_on(self) -> None:
        """A few more events, some of which fail; some that failed are well again."""
        chance = self._chance
        for number in self._spoilt.numbers():
            if chance.random() < 0.3:
                del self._spoilt[number]
        if self._backlog() > BACKLOG_EVENTS:
            return
        for _ in range(6):
            events = [Moved(next(self._numbers), chance.choice("xyz")) for _ in range(3)]
            for event in events:
                if chance.random() < 0.12:
                    self._spoilt[event.amount] = chance.choice(FAILURES)
            self._app.journal.append(f"lane-{chance.randrange(self._streams)}", events)
