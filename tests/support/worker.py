"""A worker process to be killed: `python -m tests.support.worker URL`.

Runs the app of worker_app.py until SIGTERM or SIGINT. Every signal of the runtime, and every event
that the ledger begins to handle, is a line on the standard output.
"""

import argparse
import logging
import os
import signal
import sys
import threading

from holdfast import Backoff, Poll
from holdfast import app as app_module
from holdfast.core import runner
from holdfast.core.signals import Signal
from tests.support.worker_app import build_app


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--slow-seconds", type=float, default=0.0)
    parser.add_argument("--batch-events", type=int, default=runner.BATCH_EVENTS)
    parser.add_argument("--max-failures", type=int, default=0, help="0: never give up")
    parser.add_argument("--stop-seconds", type=float, default=app_module.STOP_SECONDS)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="log %(message)s")
    runner.BATCH_EVENTS = runner.CHUNK_EVENTS = options.batch_events
    app_module.STOP_SECONDS = options.stop_seconds

    # Blocked here, they are blocked in every thread, and none is lost before we wait for them.
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    threading.Thread(target=die_with_parent, daemon=True).start()
    poll = Poll(
        max_consecutive_failures=options.max_failures or None,
        failure_backoff=Backoff(delay_seconds=0.05, max_delay_seconds=0.2),
    )
    app = build_app(
        options.url,
        slow_seconds=options.slow_seconds,
        poll=poll,
        on_handling=lambda event: say(f"Handling {event.position}"),
    )
    app.listen(say_signal)
    with app.running() as running:
        say("Running")
        signal.sigwait(stops)
        say("Stopping")
    say("Ended")
    return 1 if running.faulted else 0


def say_signal(signal: Signal) -> None:
    details = getattr(signal, "epoch", None) or getattr(signal, "position", None) or ""
    say(f"{type(signal).__name__} {signal.projection} {details}")


def say(line: str) -> None:
    """One write for a line, so that lines of threads don't mix and a kill loses none."""
    os.write(1, f"{line}\n".encode())


def die_with_parent() -> None:
    """The test holds the other end of our standard input for as long as it lives."""
    while os.read(0, 1024):
        pass
    os._exit(9)


if __name__ == "__main__":
    sys.exit(main())
