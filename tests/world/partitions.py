"""Waits for the projections of a topic: who leads its partitions, and how far they have come."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.postgres import wait_until
from tests.world.app import STREAM_KINDS
from tests.world.tables import snapshot

ARRIVAL_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Partition:
    """The checkpoint of a projection on one partition."""

    projection: str
    number: int
    position: int
    epoch: int
    processed: int
    leader: int | None
    state: str
    error: str | None


def read_partitions(url: str) -> list[Partition]:
    """Every checkpoint there is. `leader` is the number of the process that leads, or led last."""
    rows = snapshot(
        url,
        lambda query: query(
            "SELECT projection, feed, position, epoch, events_processed, leader, state,"
            " error_message FROM holdfast_checkpoint ORDER BY projection, feed"
        ),
    )
    return [
        Partition(
            projection,
            int(feed.rpartition("[")[2].removesuffix("]")),
            position,
            epoch,
            processed,
            int(leader.split(":")[1]) if leader else None,
            state,
            error,
        )
        for projection, feed, position, epoch, processed, leader, state, error in rows
    ]


def count_processed(url: str) -> dict[str, int]:
    """How many events each projection has applied, on all partitions together."""
    found: dict[str, int] = dict.fromkeys(STREAM_KINDS, 0)
    for partition in read_partitions(url):
        found[partition.projection] += partition.processed
    return found


def epochs(url: str) -> dict[tuple[str, int], int]:
    """The epoch of each projection on each partition."""
    return {(p.projection, p.number): p.epoch for p in read_partitions(url)}


def leaders(url: str) -> dict[str, dict[int, int | None]]:
    """The process that leads each partition, by projection."""
    found: dict[str, dict[int, int | None]] = {name: {} for name in STREAM_KINDS}
    for partition in read_partitions(url):
        found[partition.projection][partition.number] = partition.leader
    return found


def await_led(url: str, partitions: Iterable[int], processes: Iterable[int], what: str) -> None:
    """Returns when these processes, and no others, lead the partitions, with a share for each."""
    numbers, leading = set(partitions), set(processes)

    def is_led() -> bool:
        return all(
            set(led) == numbers and set(led.values()) == leading for led in leaders(url).values()
        )

    wait_until(is_led, ARRIVAL_SECONDS, f"{what}: {sorted(leading)} to lead {sorted(numbers)}")


def await_processed(url: str, events: int, *, alive: Callable[[], object]) -> None:
    """Returns when both projections have applied this number of events; `alive` may object.

    However long it takes, as long as there is progress.
    """
    found = count_processed(url)

    def has_moved() -> bool:
        alive()
        return count_processed(url) != found

    while min(found.values()) < events:
        try:
            wait_until(has_moved, ARRIVAL_SECONDS, "progress")
        except TimeoutError as error:
            raise TimeoutError(f"{error} to {events} events: {read_partitions(url)}") from None
        found = count_processed(url)


def await_versions(
    url: str, versions: Mapping[str, int], *, projections: Sequence[str] = STREAM_KINDS
) -> None:
    """Returns when these accounts have come to their versions."""

    def left() -> dict[tuple[str, str], int]:
        rows = snapshot(url, lambda query: query("SELECT * FROM holdfast_stream"))
        found = {(projection, stream): version for projection, stream, version, *_ in rows}
        return {
            (name, stream): version
            for name in projections
            for stream, version in versions.items()
            if found.get((name, stream), 0) < version
        }

    try:
        wait_until(lambda: not left(), ARRIVAL_SECONDS, "accounts to come to their versions")
    except TimeoutError as error:
        raise TimeoutError(f"{error}: {left()}; there are {read_partitions(url)}") from None
