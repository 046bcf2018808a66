"""The process that publishes, which tests kill: `holdfast run tests.support.publish_worker:app`.

The environment says which database and which topic, beside what worker.py reads from it.
"""

import os
import threading

from holdfast import App, Backoff, Poll
from holdfast.kafka import KafkaPublisher
from tests.support.limits import small_batches
from tests.support.worker import BATCH_EVENTS, URL, die_with_parent, say, say_signal

TOPIC = "PUBLISH_TOPIC"
BOOTSTRAP = "PUBLISH_BOOTSTRAP"

QUICK = Poll(
    failure_backoff=Backoff(delay_seconds=0.05, max_delay_seconds=0.2),
    max_consecutive_failures=None,
)


def build_publisher(url: str, *, bootstrap: str, topic: str) -> App:
    """An app that publishes its journal to a topic."""
    app = App(url)
    into, broker = topic, bootstrap

    @app.projection(poll=QUICK)
    class Publish(KafkaPublisher):
        topic = into
        bootstrap = broker
        timeout_seconds = 2.0

    return app


if TOPIC in os.environ:
    threading.Thread(target=die_with_parent, daemon=True).start()
    app = build_publisher(os.environ[URL], bootstrap=os.environ[BOOTSTRAP], topic=os.environ[TOPIC])
    small_batches(app, int(os.environ[BATCH_EVENTS]))
    app.listen(say_signal)
    say("Loaded")
