"""What the figures are taken for: how much better one case is than another in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.case import Sample
from bench.measure import Measure

Samples = Mapping[str, Sequence[Sample]]
"""The samples of each case that has run, by its name, one per round."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times better one case is than something else, and the least we want that to be.

    Of rates it is the case's own divided by the other, of what should be small the other way round.
    """

    case: str
    to: str | float | Measure
    """Another case's name, a value, or another figure of the same case."""
    bar: float | None = None
    measure: Measure = Measure.RATE


SLOW_PER_SECOND = 8 / 0.2
"""What eight handlers at once can do that take 200 ms each."""

ATTEMPT_SECONDS = 0.1
"""What an attempt at an event takes that is tried again and again."""

MAX_WORKER_BYTES = 250e6
"""The most memory that a worker may have, however long the journal is."""

RATIOS = (
    Ratio("catch-up/postgres/table", to="catch-up/postgres/eventsource-py", bar=120.0),
    Ratio("catch-up/postgres/table", to="catch-up/postgres/eventsourcing", bar=70.0),
    Ratio("catch-up/postgres/table", to="catch-up/postgres/hand-written", bar=15.0),
    Ratio("catch-up/postgres/table", to="catch-up/postgres/hand-written-pipeline"),
    Ratio("catch-up/postgres/table-50k", to="catch-up/postgres/set-based-50k", bar=0.3),
    Ratio("catch-up/postgres/table-10k", to="catch-up/postgres/set-based", bar=0.3),
    Ratio("catch-up/postgres/shards-10k", to="catch-up/postgres/set-based", bar=0.4),
    Ratio("catch-up/postgres/shards", to="catch-up/postgres/table"),
    Ratio("catch-up/postgres/sql", to="catch-up/postgres/set-based-50k", bar=0.85),
    Ratio("catch-up/postgres/handlers", to="catch-up/postgres/hand-written", bar=1.0),
    Ratio("catch-up/postgres/handlers", to="catch-up/postgres/hand-written-pipeline"),
    Ratio("catch-up/postgres/handlers-pipelined", to="catch-up/postgres/hand-written", bar=2.5),
    Ratio("catch-up/postgres/handlers-pipelined", to="catch-up/postgres/hand-written-pipeline"),
    Ratio("catch-up/sqlite/table", to="catch-up/sqlite/eventsource-py", bar=300.0),
    Ratio("catch-up/sqlite/table", to="catch-up/sqlite/eventsourcing"),
    Ratio("catch-up/sqlite/table", to="catch-up/sqlite/hand-written", bar=2.0),
    Ratio("catch-up/sqlite/table", to="catch-up/sqlite/set-based"),
    Ratio("catch-up/sqlite/sql", to="catch-up/sqlite/set-based-50k", bar=0.85),
    Ratio("catch-up/sqlite/handlers", to="catch-up/sqlite/hand-written"),
    Ratio("append/1/protected", to="append/1/bare", bar=0.9),
    Ratio("append/1/protected", to="append/1/exclusive", bar=2.0),
    Ratio("append/1/outbox", to="append/1/protected", bar=0.75),
    Ratio("append/1/journal-outbox", to="append/1/journal", measure=Measure.LONG_APPEND),
    Ratio("append/1/journal", to="append/1/eventsource-py"),
    Ratio("append/1/journal", to="append/1/eventsourcing"),
    Ratio("append/10/protected", to="append/10/bare", bar=0.9),
    Ratio("append/10/protected", to="append/10/exclusive", bar=2.0),
    Ratio("append/10/outbox", to="append/10/protected", bar=0.7),
    Ratio("append/10/journal-outbox", to="append/10/journal", measure=Measure.LONG_APPEND),
    Ratio("append/10/journal", to="append/10/eventsource-py"),
    Ratio("append/10/journal", to="append/10/eventsourcing"),
    Ratio(
        "latency/postgres/holdfast",
        to="latency/postgres/polling",
        bar=15.0,
        measure=Measure.MEDIAN_DELAY,
    ),
    Ratio(
        "latency/postgres/holdfast",
        to="latency/postgres/polling",
        bar=10.0,
        measure=Measure.LONG_DELAY,
    ),
    Ratio(
        "many/postgres/eight",
        to="many/postgres/one",
        bar=1 / 2,
        measure=Measure.JOURNAL_READS,
    ),
    Ratio("many/postgres/eight", to="many/postgres/one", bar=1 / 4, measure=Measure.CPU),
    Ratio("processes/postgres/two", to="processes/postgres/one", bar=1.6),
    Ratio("processes/sqlite/two", to="processes/sqlite/one", bar=1.6),
    *(
        Ratio(f"{group}/{kind}", to=f"{group}/clean", bar=bar)
        for group in (
            "poison-table/postgres",
            "poison-table/sqlite",
            "poison-handlers/postgres",
            "poison-handlers/sqlite",
        )
        for kind, bar in (("one-lane", 1 / 1.2), ("tenth-skipped", 1 / 3), ("tenth-parked", 1 / 3))
    ),
    *(
        Ratio(f"{group}/many", to=f"{group}/none", bar=1 / 1.2)
        for group in (
            "parked-batch/postgres",
            "parked-batch/sqlite",
            "parked-live/postgres",
            "parked-live/sqlite",
        )
    ),
    *(
        ratio
        for database in ("postgres", "sqlite")
        for ratio in (
            Ratio(
                f"retrying/{database}/many",
                to=2 * ATTEMPT_SECONDS,
                bar=1.0,
                measure=Measure.LONG_DELAY,
            ),
            Ratio(
                f"retrying/{database}/many",
                to=f"retrying/{database}/none",
                measure=Measure.LONG_DELAY,
            ),
        )
    ),
    Ratio("drain/postgres/table", to=3_000, bar=1.0),
    Ratio("drain/postgres/table", to="catch-up/postgres/table"),
    Ratio("drain/postgres/handlers", to=3_000, bar=1.0),
    Ratio("drain/postgres/handlers", to="catch-up/postgres/handlers"),
    Ratio("drain/sqlite/table", to="catch-up/sqlite/table"),
    Ratio("drain/sqlite/handlers", to="catch-up/sqlite/handlers"),
    Ratio("slow/postgres/one-process", to=SLOW_PER_SECOND, bar=0.9),
    Ratio("slow/postgres/two-processes", to=2 * SLOW_PER_SECOND, bar=0.9),
    Ratio("slow/sqlite/one-process", to=SLOW_PER_SECOND, bar=0.9),
    Ratio("claim/due/many", to="claim/due/few", bar=1 / 1.5),
    Ratio("claim/closed/many", to="claim/closed/few", bar=1 / 1.5),
    Ratio("kafka/postgres/topic", to="kafka/postgres/journal", bar=0.5),
    Ratio("kafka/postgres/topic-of-4", to="kafka/postgres/journal", bar=0.5),
    Ratio("kafka/sqlite/topic", to="kafka/sqlite/journal", bar=0.5),
    Ratio("kafka/sqlite/topic-of-4", to="kafka/sqlite/journal", bar=0.5),
    *(
        ratio
        for case in ("growth/postgres/table", "growth/sqlite/table")
        for ratio in (
            Ratio(case, to=Measure.FIRST_RATE, bar=0.9, measure=Measure.LAST_RATE),
            Ratio(case, to=MAX_WORKER_BYTES, bar=1.0, measure=Measure.PEAK_MEMORY),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A ratio as measured: round by round, because neighbours in time share the machine's mood."""

    ratio: Ratio
    by_round: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.by_round)

    @property
    def low(self) -> float:
        return min(self.by_round)

    @property
    def high(self) -> float:
        return max(self.by_round)

    @property
    def is_open(self) -> bool:
        """Whether the rounds disagree about the bar."""
        return self.ratio.bar is not None and self.low < self.ratio.bar <= self.high

    @property
    def met(self) -> bool | None:
        """Whether the median reaches the bar; None where there is no bar."""
        return None if self.ratio.bar is None else self.median >= self.ratio.bar


def outcomes(samples: Samples, ratios: Sequence[Ratio] = RATIOS) -> Iterator[Outcome]:
    """The ratios whose cases have all run."""
    for ratio in ratios:
        others = samples.get(ratio.to) if isinstance(ratio.to, str) else samples.get(ratio.case)
        if ratio.case in samples and others is not None:
            by_round = [
                ratio.measure.times_better(ours.value(ratio.measure), _other(ratio, theirs))
                # One of them may have run more often.
                for ours, theirs in zip(samples[ratio.case], others, strict=False)
            ]
            yield Outcome(ratio, by_round)


def open_cases(samples: Samples, ratios: Sequence[Ratio] = RATIOS) -> set[str]:
    """The cases of all ratios of which the rounds so far don't tell whether they meet their bar."""
    return {
        case
        for outcome in outcomes(samples, ratios)
        if outcome.is_open
        for case in (outcome.ratio.case, outcome.ratio.to)
        if isinstance(case, str)
    }


def _other(ratio: Ratio, sample: Sample) -> float:
    """What the case is compared with; the sample is the other's, or its own if there is none."""
    match ratio.to:
        case str():
            return sample.value(ratio.measure)
        case Measure():
            return sample.value(ratio.to)
        case _:
            return ratio.to
