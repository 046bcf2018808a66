"""Events that are appended, spoilt and mended while workers come and go."""

import random
from collections.abc import Callable
from itertools import count

import psycopg

from holdfast import App
from tests.support.lanes import Stepped
from tests.support.lanes_worker import Spoilt

BACKLOG_EVENTS = 60
FAILURES = ("park", "park", "park and soon", "park and soon", "skip", "retry, then park")


class History:
    """`backlog`: how many events are still to be come to."""

    def __init__(
        self,
        app: App,
        spoilt: Spoilt,
        chance: random.Random,
        *,
        backlog: Callable[[], int],
        streams: int = 4,
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
            events = [Stepped(next(self._numbers), chance.choice("xyz")) for _ in range(3)]
            for event in events:
                if chance.random() < 0.12:
                    self._spoilt[event.number] = chance.choice(FAILURES)
            self._app.journal.append(f"lane-{chance.randrange(self._streams)}", events)


def slow_commits(url: str) -> None:
    """Holds every transaction that closes, changes or opens a lane for a while in its COMMIT."""
    with psycopg.connect(url) as connection:
        connection.execute(
            """
            CREATE FUNCTION at_lane() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END $$;
            CREATE CONSTRAINT TRIGGER at_lane AFTER INSERT OR UPDATE OR DELETE ON holdfast_lane
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_lane()
            """
        )
