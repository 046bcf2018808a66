"""Makes what a test wants of a worker: its app, its limits, its memory.

Apart from worker.py, so that processes have it before they are forked.
"""

import resource
from pathlib import Path

from holdfast import App, Backoff, Poll
from holdfast.kafka import KafkaPublisher, group_leases, group_worker
from holdfast.runtime.outbox import bundle_size, relay
from holdfast.sql.outbox import claims
from tests.world.app import build_app
from tests.world.spoilt import Spoilt, Suffering
from tests.world.topic import source_of
from tests.world.wanted import Limits, Topic, Wanted
from tests.world.watched import Watch

QUICK = Backoff(delay_seconds=0.05, max_delay_seconds=0.2)


def build_wanted(wanted: Wanted) -> App:
    poll = Poll(max_consecutive_failures=wanted.max_failures, failure_backoff=QUICK)
    if wanted.publishes is not None:
        return build_publisher(wanted.url, wanted.publishes, poll=poll)
    watch = Watch(wanted.dies, wanted.trace)
    spoilt = None if wanted.spoilt is None else Spoilt(Path(wanted.spoilt))
    suffering = Suffering(spoilt, watch, random_seconds=wanted.random_seconds)
    return build_app(
        wanted.url,
        *wanted.projections,
        source=None if wanted.reads is None else source_of(wanted.reads),
        concurrency=wanted.concurrency,
        shards=wanted.shards,
        policy=suffering.policy(is_patient=wanted.is_patient),
        poll=poll,
        writes=wanted.writes,
        slow_seconds=wanted.slow_seconds,
        on_folding=suffering.before,
        on_handling=suffering.handle,
        after=suffering.after,
        open_app=watch.open,
    )


def build_publisher(url: str, into: Topic, *, poll: Poll | None = None) -> App:
    """An app that publishes its journal to a topic."""
    app = App(url)
    poll = poll or Poll(max_consecutive_failures=None, failure_backoff=QUICK)

    @app.projection(poll=poll)
    class Publish(KafkaPublisher):
        topic = into.name
        bootstrap = into.bootstrap
        timeout_seconds = 2.0

    return app


def set_constants(limits: Limits) -> None:
    if limits.lease_seconds is not None:
        for module in (relay, claims):
            module.LEASE_SECONDS = limits.lease_seconds  # type: ignore[attr-defined]
        relay.TEND_SECONDS = limits.lease_seconds / 4
    if limits.bundle_lanes is not None:
        bundle_size.LARGEST_BUNDLE = limits.bundle_lanes
    if limits.backfill_events is not None:
        claims.BACKFILL_EVENTS = limits.backfill_events
    if limits.revoke_seconds is not None:
        group_worker.REVOKE_SECONDS = limits.revoke_seconds
    if limits.lease_wait_seconds is not None:
        group_leases.LEASE_WAIT_SECONDS = limits.lease_wait_seconds


def limit_memory(spare_bytes: int) -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + spare_bytes, resource.RLIM_INFINITY))
