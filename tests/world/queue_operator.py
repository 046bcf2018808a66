"""An operator in a process that may be killed: `python -m tests.world.queue_operator`.

Requeues, retries and resolves at random, without a pause, and says what it has done.
"""

import random
import threading
import time

from holdfast import QueueSelection, StoreUnavailable
from tests.world.app import build_app
from tests.world.speech import die_with_parent, say
from tests.world.wanted import wanted_here


def main() -> None:
    threading.Thread(target=die_with_parent, daemon=True).start()
    chance = random.Random()
    wanted = wanted_here()
    assert wanted is not None
    with build_app(wanted.url, *wanted.projections, concurrency=wanted.concurrency) as app:
        queue = app.queue
        say("Ready")
        while True:
            items = queue.list(limit=50)
            waiting = [item for item in items if item.status not in ("skipped", "resolved")]
            if not waiting:
                time.sleep(0.005)
                continue
            item = chance.choice(waiting)
            one, lane = QueueSelection(ids=(item.id,)), QueueSelection(lane=item.lane)
            try:
                match chance.randrange(6):
                    case 0:
                        change = queue.resolve(one, by="an operator")
                    case 1:
                        change = queue.mark_retrying(one, by="an operator")
                    case 2:
                        change = queue.requeue(one, by="an operator")
                    case _:
                        change = queue.requeue(lane, by="an operator")
            except StoreUnavailable as error:
                say(f"Failed {error}")
            except Exception as error:  # The item may just have been applied.
                if "has no item" not in str(error):
                    raise
            else:
                say(f"Changed {change.action} {len(change.items)}")


if __name__ == "__main__":
    main()
