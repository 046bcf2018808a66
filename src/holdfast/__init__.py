"""holdfast keeps read models exactly right: projections for event-sourced Python.

app         App: register, append, run, wait
operations  what operators do
assembly    a database with its sessions, feeds and workers put together
catalog     the projections and sinks of an App, and their settings
running     projections in threads of the user's program
model       what users declare
runtime     the way of one event
sql         the database: journal, store, queue, and what operators ask of it
kafka       projections that read Kafka, and the journal published to Kafka
webhook     a sink that posts to a URL
http_post   a POST request with one deadline
sqlalchemy  SQLAlchemy in handlers
metrics     metrics for OpenTelemetry and Prometheus
logs        log records of signals
cli         the `holdfast` command
testing     helpers for tests of projections
errors      every error that holdfast raises on purpose
clock       the system clock
threads     blocking functions, to be awaited
texts       texts of others: without secrets, cut, safe for a terminal
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast._public import *  # noqa: F403
    from holdfast._public import __all__ as __all__
else:
    # Names are loaded on first use, so that the command line starts fast.

    def __getattr__(name: str) -> object:
        if name == "__all__" or not name.startswith("_"):
            from holdfast import _public

            if name == "__all__" or name in _public.__all__:
                value = globals()[name] = getattr(_public, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        from holdfast import _public

        return sorted({*globals(), *_public.__all__})
