"""Recovery: what the policy's answer comes to, attempt by attempt."""

import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import (
    Backoff,
    Breaker,
    Decision,
    EventTypes,
    Failure,
    Fatal,
    Park,
    Policy,
    Projection,
    Retry,
    RetryBudget,
    Skip,
    on,
)
from holdfast.model.compile_projection import compile_projection
from holdfast.model.event import RawEvent
from holdfast.runtime.engines.invoke import Invoker
from holdfast.runtime.failure.recovery import GiveUp, PolicyFailed, Recovery, RetryAfter
from holdfast.runtime.signals import BreakerOpened, Failed, Signal
from holdfast.runtime.store.faults import MAX_MESSAGE_CHARACTERS
from holdfast.runtime.store.queue_items import MAX_HISTORY, FailureHistory
from holdfast.testing import FixedClock

NAMES = ("entries", "journal")
STEADY = Backoff(max_attempts=3, delay_seconds=2, multiplier=1, jitter=0)
EVER = replace(STEADY, max_attempts=None)


@dataclass
class Credited:
    amount: int


class Entries(Projection):
    @on("*")
    def any(self, event: object, tx: object) -> None:
        pass


class Deciding:
    """A recovery, with the clock it looks at and the signals it emits."""

    def __init__(self, policy: Policy, **options: Any) -> None:
        self.clock = FixedClock()
        self.signals: list[Signal] = []
        self.invoker = Invoker()
        self.types = EventTypes()
        self.types.register(Credited, name="credited")
        self.recovery = Recovery(
            compile_projection(Entries, types=self.types, policy=policy, **options),
            feed="journal",
            types=self.types,
            invoker=self.invoker,
            clock=self.clock,
            emit=self.signals.append,
        )

    def ask(self, event: RawEvent, error: BaseException | None = None) -> RetryAfter | GiveUp:
        return self.recovery.decide(event, event.stream, error or ValueError("no"))

    @property
    def decisions(self) -> list[tuple[str, int, int | None, float | None]]:
        """Each failed attempt: the decision, its number, their maximum, and the wait."""
        failed = [signal for signal in self.signals if isinstance(signal, Failed)]
        return [(f.decision, f.attempt, f.max_attempts, f.delay_seconds) for f in failed]

    def emitted(self, *kinds: type) -> list[Signal]:
        return [signal for signal in self.signals if isinstance(signal, kinds)]


@pytest.fixture
def deciding() -> Iterator[Callable[..., Deciding]]:
    made: list[Deciding] = []

    def make(policy: Policy, **options: Any) -> Deciding:
        made.append(Deciding(policy, **options))
        return made[-1]

    yield make
    for each in made:
        each.invoker.close()


def event_at(position: int, data: str = '{"amount":5}', kind: str = "credited") -> RawEvent:
    stream = f"account-{position}"
    return RawEvent(
        position, stream, 1, str(UUID(int=position)), kind, data, "{}", FixedClock().now()
    )


class Asked:
    """An on_error that keeps the failures it was asked about."""

    def __init__(self, *decisions: Decision) -> None:
        self.failures: list[Failure] = []
        self._decisions = decisions

    def __call__(self, failure: Failure) -> Decision:
        self.failures.append(failure)
        return self._decisions[min(len(self.failures), len(self._decisions)) - 1]


# Failures


def test_a_failure_tells_everything(deciding: Callable[..., Deciding]) -> None:
    asked = Asked(Skip())
    here, error = deciding(Policy(on_error=asked)), ValueError("no")
    here.recovery.decide(event_at(7), "lane", error)
    (failure,) = asked.failures
    assert failure.event.data == Credited(5)
    assert failure.event.id == UUID(int=7)
    assert failure.error is error
    assert (failure.position, failure.projection, failure.lane) == (7, "entries", "lane")
    assert failure.attempt == 1
    assert failure.first_failed_at == failure.failed_at == here.clock.now()


def test_attempts_are_counted_and_the_first_time_is_kept(deciding: Callable[..., Deciding]) -> None:
    asked = Asked(Retry(Backoff.critical()))
    here = deciding(Policy(on_error=asked))
    start = here.clock.now()
    for _ in range(3):
        here.ask(event_at(1))
        here.clock.advance(10)
    here.ask(event_at(2))
    assert [failure.attempt for failure in asked.failures] == [1, 2, 3, 1]
    assert [failure.first_failed_at for failure in asked.failures[:3]] == [start] * 3
    assert [failure.age_seconds for failure in asked.failures] == [0, 10, 20, 0]
    record = here.recovery.history_of(event_at(1))
    assert record.attempts == 3
    assert [attempt.at for attempt in record.last_attempts] == [
        start + timedelta(seconds=seconds) for seconds in (0, 10, 20)
    ]


def test_a_record_ends_when_its_event_is_settled(deciding: Callable[..., Deciding]) -> None:
    here = deciding(Policy())
    known = [bool(here.recovery.known)]
    assert here.recovery.forget(event_at(1)) is None
    here.ask(event_at(1))
    known.append(bool(here.recovery.known))
    record = here.recovery.forget(event_at(1))
    known.append(bool(here.recovery.known))
    assert known == [False, True, False]
    assert record is not None
    assert record.attempts == 1
    assert here.recovery.history_of(event_at(1)) == FailureHistory()


def test_a_record_from_the_queue_is_continued(deciding: Callable[..., Deciding]) -> None:
    asked = Asked(Park())
    here = deciding(Policy(on_error=asked))
    first = here.clock.now() - timedelta(hours=1)
    here.recovery.adopt(event_at(1), FailureHistory(attempts=4, first_failed_at=first))
    here.ask(event_at(1))
    assert asked.failures[0].attempt == 5
    assert asked.failures[0].age_seconds == 3600


def test_history_and_messages_are_bounded(deciding: Callable[..., Deciding]) -> None:
    here = deciding(Policy())
    for number in range(MAX_HISTORY + 5):
        here.ask(event_at(1), ValueError(f"{number}: " + "x" * 100_000))
    record = here.recovery.history_of(event_at(1))
    assert record.attempts == MAX_HISTORY + 5
    assert len(record.last_attempts) == MAX_HISTORY
    assert record.last_attempts[0].error_message.startswith("5: ")
    assert len(record.last_attempts[0].error_message) < MAX_MESSAGE_CHARACTERS + 100


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        ('{"amount":"five"}', "credited", {"amount": "five"}),
        ('{"other":[1]}', "credited", {"other": [1]}),
        ("not JSON", "credited", "not JSON"),
    ],
)
def test_a_payload_that_cannot_be_decoded_is_shown_plain(
    deciding: Callable[..., Deciding], data: str, kind: str, expected: object
) -> None:
    asked = Asked(Park())
    deciding(Policy(on_error=asked)).ask(event_at(1, data, kind))
    event = asked.failures[0].event
    assert event.data == expected
    assert (event.position, event.stream, event.type) == (1, "account-1", "credited")
    assert event.metadata == {}


# Decisions


@pytest.mark.parametrize("decision", [Fatal(), Skip(), Park(), Park(retry=Backoff())])
def test_a_final_decision_is_given_at_once(
    deciding: Callable[..., Deciding], decision: Fatal | Skip | Park
) -> None:
    error = ValueError("no")
    assert deciding(Policy(on_error=decision)).ask(event_at(1), error) == GiveUp(decision, error)


def test_retries_until_they_are_exhausted(deciding: Callable[..., Deciding]) -> None:
    here = deciding(Policy(on_error=Retry(), backoff=STEADY, exhausted=Park()))
    error = ValueError("no")
    verdicts = [here.ask(event_at(1), error) for _ in range(4)]
    assert verdicts[:2] == [RetryAfter(2, "retry"), RetryAfter(2, "retry")]
    assert verdicts[2:] == [GiveUp(Park(), error), GiveUp(Park(), error)]
    assert here.decisions[:2] == [("retry", 1, 3, 2), ("retry", 2, 3, 2)]
    assert here.decisions[2:] == [("park", 3, 3, None), ("park", 4, 4, None)]


def test_a_retry_may_have_its_own_backoff_and_end(deciding: Callable[..., Deciding]) -> None:
    own = Retry(Backoff(max_attempts=2, delay_seconds=4, jitter=0), exhausted=Skip())
    here = deciding(Policy(on_error=own, backoff=STEADY, exhausted=Park()))
    error = ValueError("no")
    assert here.ask(event_at(1)) == RetryAfter(4, "retry")
    assert here.ask(event_at(1), error) == GiveUp(Skip(), error)


def test_on_error_is_asked_again_at_every_attempt(deciding: Callable[..., Deciding]) -> None:
    here = deciding(Policy(on_error=Asked(Retry(), Skip()), backoff=STEADY))
    error = ValueError("no")
    assert here.ask(event_at(1)) == RetryAfter(2, "retry")
    assert here.ask(event_at(1), error) == GiveUp(Skip(), error)


def test_an_event_type_has_its_own_policy(deciding: Callable[..., Deciding]) -> None:
    own = Policy(on_error=Retry(), backoff=STEADY, exhausted=Skip())
    here = deciding(Policy(event_types={Credited: own}))
    error = ValueError("no")
    assert here.ask(event_at(1)) == RetryAfter(2, "retry")
    assert here.ask(event_at(2, kind="debited"), error) == GiveUp(Fatal(), error)


def test_on_error_may_be_a_coroutine(deciding: Callable[..., Deciding]) -> None:
    async def decide(failure: Failure) -> Decision:
        return Park()

    error = ValueError("no")
    assert deciding(Policy(on_error=decide)).ask(event_at(1), error) == GiveUp(Park(), error)


def test_a_schedule_gets_the_failure(deciding: Callable[..., Deciding]) -> None:
    backoff = Backoff(schedule=lambda failure: failure.attempt + 0.5, jitter=0)
    here = deciding(Policy(on_error=Retry(backoff)))
    assert [here.ask(event_at(1)) for _ in range(2)] == [
        RetryAfter(1.5, "retry"),
        RetryAfter(2.5, "retry"),
    ]


# Functions of a policy that fail


def raises(failure: Failure) -> Decision:
    raise KeyError("on_error has a bug")


async def raises_later(failure: Failure) -> Decision:
    raise KeyError("on_error has a bug")


def exits(failure: Failure) -> Decision:
    raise SystemExit("on_error has a bug")


@pytest.mark.parametrize("on_error", [raises, raises_later, exits])
def test_an_on_error_that_raises_is_fatal_and_shows_both_errors(
    deciding: Callable[..., Deciding], on_error: Callable[[Failure], Decision | Awaitable[Decision]]
) -> None:
    here = deciding(Policy(on_error=on_error, exhausted=Park()))
    verdict = here.ask(event_at(1), ValueError("the handler has one too"))
    assert isinstance(verdict, GiveUp)
    assert verdict.decision == Fatal()
    assert isinstance(verdict.error, PolicyFailed)
    for text in (str(verdict.error), "".join(traceback.format_exception(verdict.error))):
        assert "on_error has a bug" in text
        assert "the handler has one too" in text
    assert "'entries'" in str(verdict.error)
    assert here.decisions == [("fatal", 1, 1, None)]


@pytest.mark.parametrize("nonsense", [None, True, "skip", Skip])
def test_an_on_error_that_returns_nonsense_is_fatal(
    deciding: Callable[..., Deciding], nonsense: Any
) -> None:
    verdict = deciding(Policy(on_error=lambda _: nonsense)).ask(event_at(1), ValueError("no"))
    assert isinstance(verdict, GiveUp)
    assert verdict.decision == Fatal()
    assert isinstance(verdict.error, PolicyFailed)
    assert f"it returned {nonsense!r}, not a decision" in str(verdict.error)
    assert "ValueError: no" in str(verdict.error)


def test_an_on_error_that_raises_what_it_was_given(deciding: Callable[..., Deciding]) -> None:
    def again(failure: Failure) -> Decision:
        raise failure.error

    verdict = deciding(Policy(on_error=again)).ask(event_at(1), ValueError("no"))
    assert isinstance(verdict, GiveUp)
    assert verdict.decision == Fatal()
    assert "ValueError: no" in "".join(traceback.format_exception(verdict.error))


def test_a_schedule_that_raises_is_fatal(deciding: Callable[..., Deciding]) -> None:
    def schedule(failure: Failure) -> float:
        raise KeyError("schedule has a bug")

    here = deciding(Policy(on_error=Retry(Backoff(schedule=schedule)), exhausted=Park()))
    verdict = here.ask(event_at(1), ValueError("the handler has one too"))
    assert isinstance(verdict, GiveUp)
    assert verdict.decision == Fatal()
    assert "schedule has a bug" in str(verdict.error)
    assert "the handler has one too" in str(verdict.error)
    assert here.decisions == [("fatal", 1, 1, None)]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_errors_without_a_text_can_be_judged(deciding: Callable[..., Deciding]) -> None:
    def raise_mute(failure: Failure) -> Decision:
        raise Mute

    here = deciding(Policy(on_error=raise_mute))
    verdict = here.ask(event_at(1), Mute())
    assert isinstance(verdict, GiveUp)
    assert "Mute: (no message: str() raised RuntimeError)" in str(verdict.error)


# Breaker


def test_a_breaker_opens_after_so_many_failures_in_a_row(deciding: Callable[..., Deciding]) -> None:
    asked = Asked(Skip())
    here = deciding(Policy(on_error=asked, breaker=Breaker(failures=3, pause_seconds=9)))
    verdicts = [here.ask(event_at(position)) for position in (1, 2, 3)]
    assert [type(verdict) for verdict in verdicts] == [GiveUp, GiveUp, RetryAfter]
    assert verdicts[2] == RetryAfter(9, "breaker")
    assert len(asked.failures) == 2  # Nothing is skipped or parked while it is open.
    assert here.ask(event_at(3)) == RetryAfter(9, "breaker")
    assert here.emitted(BreakerOpened) == [BreakerOpened(*NAMES, 3, 9)] * 2
    assert here.decisions[2:] == [("breaker", 1, None, 9), ("breaker", 2, None, 9)]


def test_a_success_closes_the_breaker(deciding: Callable[..., Deciding]) -> None:
    here = deciding(Policy(on_error=Skip(), breaker=Breaker(failures=2)))
    assert isinstance(here.ask(event_at(1)), GiveUp)
    here.recovery.state.failures_in_a_row = 0
    assert isinstance(here.ask(event_at(2)), GiveUp)
    assert here.ask(event_at(3)) == RetryAfter(30, "breaker")
    here.recovery.state.failures_in_a_row = 0
    assert isinstance(here.ask(event_at(4)), GiveUp)
    assert len(here.emitted(BreakerOpened)) == 1


def test_the_breaker_counts_all_event_types(deciding: Callable[..., Deciding]) -> None:
    policy = Policy(
        on_error=Skip(),
        event_types={"debited": Policy(on_error=Park())},
        breaker=Breaker(failures=2),
    )
    here = deciding(policy)
    assert isinstance(here.ask(event_at(1)), GiveUp)
    assert isinstance(here.ask(event_at(2, kind="debited")), RetryAfter)


# Budget


def test_a_budget_runs_out_and_comes_back(deciding: Callable[..., Deciding]) -> None:
    backoff = Backoff(max_attempts=None, delay_seconds=4, multiplier=1, jitter=0)
    here = deciding(
        Policy(
            on_error=Retry(backoff),
            exhausted=Park(),
            budget=RetryBudget(seconds=10, window_seconds=60),
        )
    )
    error = ValueError("no")
    assert here.ask(event_at(1)) == RetryAfter(4, "retry")
    here.clock.advance(30)
    assert here.ask(event_at(2)) == RetryAfter(4, "retry")
    assert here.ask(event_at(3), error) == GiveUp(Park(), error)
    assert [decision for decision, *_ in here.decisions] == ["retry", "retry", "park"]
    here.clock.advance(30)  # The first wait is a minute old.
    assert here.ask(event_at(3)) == RetryAfter(4, "retry")
    assert here.ask(event_at(3), error) == GiveUp(Park(), error)
    here.clock.advance(60)
    assert here.ask(event_at(3)) == RetryAfter(4, "retry")


def test_a_wait_that_does_not_fit_the_budget_is_not_begun(
    deciding: Callable[..., Deciding],
) -> None:
    backoff = Backoff(delay_seconds=4, jitter=0)
    here = deciding(
        Policy(on_error=Retry(backoff), exhausted=Skip(), budget=RetryBudget(seconds=3.9))
    )
    error = ValueError("no")
    assert here.ask(event_at(1), error) == GiveUp(Skip(), error)


# Signals


def test_the_signal_of_a_failed_attempt(deciding: Callable[..., Deciding]) -> None:
    here, event = deciding(Policy(on_error=Retry(), backoff=STEADY)), event_at(7)
    here.recovery.decide(event, "lane", ValueError("no"))
    names = (str(event.id), "credited", "account-7", "lane")
    text = "ValueError: no\n"
    assert here.signals == [Failed(*NAMES, 7, *names, 1, 3, "retry", 2, "ValueError", "no", text)]


@pytest.mark.parametrize(
    ("policy", "retries", "told"),
    [
        (Policy(), 0, ("fatal", 1, 1, None)),
        (Policy(on_error=Skip()), 0, ("skip", 1, 1, None)),
        (Policy(on_error=Park()), 0, ("park", 1, 1, None)),
        (Policy(on_error=Retry(Backoff(max_attempts=1))), 0, ("fatal", 1, 1, None)),
        (Policy(on_error=Retry(EVER)), 0, ("retry", 1, None, 2)),
        (Policy(on_error=Park(retry=STEADY)), 0, ("park", 1, 4, 2)),
        (Policy(on_error=Park(retry=STEADY)), 1, ("park", 1, 3, 2)),
        (Policy(on_error=Park(retry=STEADY)), 3, ("park", 1, 1, None)),
        (Policy(on_error=Park(retry=EVER)), 9, ("park", 1, None, 2)),
    ],
)
def test_a_failed_attempt_tells_its_number_and_the_wait(
    deciding: Callable[..., Deciding],
    policy: Policy,
    retries: int,
    told: tuple[str, int, int | None, float | None],
) -> None:
    here = deciding(policy)
    here.recovery.decide(event_at(7), "lane", KeyError("no"), retries=retries)
    assert here.decisions == [told]


def test_a_mask_hides_texts_from_signals_and_keeps_them_in_the_record(
    deciding: Callable[..., Deciding],
) -> None:
    here = deciding(Policy(on_error=Park()), mask=True)
    here.ask(event_at(1), ValueError("card 4711"))
    (failed,) = here.emitted(Failed)
    assert isinstance(failed, Failed)
    assert failed.error == "(masked)"
    assert here.recovery.history_of(event_at(1)).last_attempts[0].error_message == "card 4711"
    assert "4711" not in str(here.signals)
