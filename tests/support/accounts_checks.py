"""Whether the tables of accounts.py are right, by sums that share no code with the projections.

Everything is read with the plain drivers in one snapshot, so it may be asked at any moment: what is
there of an account must be its first so many events, each once and in order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.accounts import PROJECTIONS, balance
from tests.support.postgres import wait_until
from tests.support.worker_checks import Query, snapshot

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
    found = dict.fromkeys(PROJECTIONS, 0)
    for partition in read_partitions(url):
        found[partition.projection] += partition.processed
    return found


def epochs(url: str) -> dict[tuple[str, int], int]:
    """The epoch of each projection on each partition."""
    return {(p.projection, p.number): p.epoch for p in read_partitions(url)}


def leaders(url: str) -> dict[str, dict[int, int | None]]:
    """The process that leads each partition, by projection."""
    found: dict[str, dict[int, int | None]] = {name: {} for name in PROJECTIONS}
    for partition in read_partitions(url):
        found[partition.projection][partition.number] = partition.leader
    return found


def await_led(url: str, partitions: Iterable[int], processes: Iterable[int], what: str) -> None:
    """Returns when these processes, and no others, lead the partitions, with a share for each."""
    numbers, crew = set(partitions), set(processes)

    def is_led() -> bool:
        return all(
            set(led) == numbers and set(led.values()) == crew for led in leaders(url).values()
        )

    wait_until(is_led, ARRIVAL_SECONDS, f"{what}: {sorted(crew)} to lead {sorted(numbers)}")


def await_processed(url: str, events: int, *, alive: Callable[[], object]) -> None:
    """Returns when both projections have applied so many events, or more; `alive` may object.

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
    url: str, versions: Mapping[str, int], *, projections: Sequence[str] = PROJECTIONS
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


def check_accounts(url: str, versions: Mapping[str, int] | None = None) -> int:
    """Asserts that rows, log and versions agree; returns how many lines the log has.

    `versions`: also that each account has come to its version, and nothing waits anywhere.
    """
    return snapshot(url, lambda query: _check(query, versions))


def _check(query: Query, versions: Mapping[str, int] | None) -> int:
    known: dict[str, dict[str, int]] = {name: {} for name in PROJECTIONS}
    for projection, stream, version in query(
        "SELECT projection, stream, version FROM holdfast_stream"
    ):
        known[projection][stream] = version
    lines = _check_log(query, known["log"])
    _check_balances(query, known["balances"])
    processed: dict[str, int] = dict(
        query("SELECT projection, sum(events_processed) FROM holdfast_checkpoint GROUP BY 1")
    )
    for name, streams in known.items():
        assert processed.get(name, 0) == sum(streams.values()), f"{name} counts {processed}"
    waiting = query(
        "SELECT projection, feed, lane, version, status, error_type FROM holdfast_queue"
    )
    assert waiting == []
    assert query("SELECT * FROM holdfast_lane") == []
    if versions is not None:
        for name, streams in known.items():
            assert streams == versions, f"{name}: {_difference(streams, versions)}"
    return lines


def _check_log(query: Query, known: Mapping[str, int]) -> int:
    if not _exists(query, "log"):
        assert known == {}
        return 0
    seen: dict[str, list[int]] = {}
    for stream, version in query("SELECT stream, version FROM log ORDER BY entry"):
        seen.setdefault(stream, []).append(version)
    wrong = {stream: found for stream, found in seen.items() if found != _counted(found)}
    assert wrong == {}, f"lost, doubled or out of order: {wrong}"
    assert {stream: len(found) for stream, found in seen.items()} == known
    counts: dict[str, int] = dict(query("SELECT stream, n FROM log_count"))
    assert counts == known
    return sum(map(len, seen.values()))


def _check_balances(query: Query, known: Mapping[str, int]) -> None:
    if not _exists(query, "balances"):
        assert known == {}
        return
    rows = {name: row for name, *row in query("SELECT account, amount, _version FROM balances")}
    assert rows == {
        stream: [balance(stream, version), version] for stream, version in known.items()
    }


def _counted(found: Sequence[int]) -> list[int]:
    return list(range(1, len(found) + 1))


def _difference(found: Mapping[str, int], expected: Mapping[str, int]) -> dict[str, object]:
    streams = sorted({*found, *expected})
    pairs = {stream: (found.get(stream), expected.get(stream)) for stream in streams}
    return {stream: pair for stream, pair in pairs.items() if pair[0] != pair[1]}


def _exists(query: Query, table: str) -> bool:
    return bool(query(f"SELECT name FROM holdfast_table WHERE name = '{table}'"))
