"""The last commit of a thread: what it waits for, how long, and in which order, with parts that only take notes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.errors import MilestonesError
from milestones.common.kafka.retry import RETRY_PAUSE_MS
from milestones.common.testing.clock import StepClock
from milestones.parts.transaction import CommitAction, CommitEvent
from milestones.stream_thread.commits.last_commit import LAST_COMMIT_MS, LAST_FLUSH_MS, MOST_TRIES, LastCommit

TASK = "0_0"


class Thread:
    """The parts around a `LastCommit`. `done`: what was asked of them, in order. `answer`: the register's, to a last
    commit that failed. `prepared_after`, `resting_after`: the number of looks before all caches are flushed, and before
    no thread processes."""

    def __init__(self, close_timeout_ms: int = 60_000) -> None:
        self.clock, self.done = StepClock(), list[Any]()
        self.failing, self.rest_ms = False, float("inf")
        self.earlier: Callable[[], bool] = lambda: True
        self.now: Callable[[], None] = lambda: None
        self.answer = CommitAction.TRY_ONCE_MORE
        self.prepared_after = self.resting_after = 0
        context: Any = SimpleNamespace(
            clock=self.clock, name="thread", config=SimpleNamespace(close_timeout_ms=close_timeout_ms),
            retry_policy=SimpleNamespace(rest_ms=lambda: self.rest_ms),
        )  # fmt: skip
        tasks: Any = SimpleNamespace(processing={TASK: object()})
        processing: Any = SimpleNamespace(
            hold_tasks=lambda tasks: self.done.append(("hold", set(tasks))),
            prepare_commit=self._prepare, at_rest=self._at_rest,
        )  # fmt: skip
        ends: Any = SimpleNamespace(stop_isolating=lambda: self.done.append("stop isolating"))
        commits: Any = SimpleNamespace(pace=self, finish_earlier=self._finish_earlier, commit_now=self._commit_now)
        recoveries: Any = SimpleNamespace(
            finish=lambda: self.done.append("finish the recovery"),
            recover=lambda error, now_ms: self.done.append(f"recover from {error}"),
        )
        register: Any = SimpleNamespace(answer=lambda event: {CommitEvent.LAST_COMMIT_FAILED: self.answer}[event])
        self.last = LastCommit(
            context, tasks, processing, ends, commits, recoveries, register, lambda: self.done.append("send all")
        )

    def _prepare(self, now_ms: int, patience_ms: int, *, final: bool) -> bool:
        assert final
        self.prepared_after -= 1
        return self.prepared_after < 0

    def _at_rest(self, tasks: Any) -> bool:
        self.resting_after -= 1
        return self.resting_after < 0

    def _finish_earlier(self, now_ms: int, until_ms: float) -> bool:
        self.done.append("finish earlier ones")
        return self.earlier()

    def _commit_now(self, now_ms: int) -> None:
        self.done.append("commit")
        self.now()

    def times(self, step: str) -> int:
        return self.done.count(step)


def failing(times: int, error: str = "no answer") -> Callable[[], None]:
    """A step that fails so often, and then succeeds."""
    left = [error] * times

    def step() -> None:
        if left:
            raise MilestonesError(left.pop())

    return step


def test_earlier_commits_are_finished_then_processing_stops_then_all_outputs_are_sent_and_committed() -> None:
    t = Thread()
    assert t.last.make()
    before = ["finish the recovery", "stop isolating", "finish earlier ones"]
    assert t.done == [*before, ("hold", {TASK}), *before, "send all", "commit"]


def test_nothing_is_sent_or_committed_while_an_earlier_commit_is_left() -> None:
    t = Thread()
    t.earlier = lambda: False
    t.last.make()
    assert (t.times("send all"), t.times("commit")) == (0, 0)


def test_it_waits_until_all_caches_are_flushed_and_no_thread_processes() -> None:
    t = Thread()
    t.prepared_after, t.resting_after = 3, 2
    assert t.last.make()
    assert (t.prepared_after, t.resting_after, t.times("commit")) == (-3, -1, 1)


@pytest.mark.parametrize("close_timeout_ms", [60_000, 9_000])
def test_it_waits_for_a_long_call_no_longer_than_the_last_flush_may_take(close_timeout_ms: int) -> None:
    t = Thread(close_timeout_ms)
    t.resting_after = 1_000_000
    assert t.last.make()
    assert 0 <= t.clock.monotonic_ms() - min(LAST_FLUSH_MS, close_timeout_ms // 3) < 10


def test_a_commit_that_fails_is_tried_again_after_each_recovery() -> None:
    t = Thread()
    t.now = failing(2)
    assert t.last.make()
    assert (t.times("commit"), t.times("recover from no answer")) == (3, 2)


def test_a_commit_that_always_fails_is_tried_no_more_than_a_few_times_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    t = Thread()
    t.now = failing(100)
    with caplog.at_level(logging.ERROR):
        assert not t.last.make()
    assert t.times("commit") == MOST_TRIES
    assert "the last commit failed: no answer; nothing is lost" in caplog.text


def test_a_commit_that_may_not_be_tried_again_is_not() -> None:
    t = Thread()
    t.now, t.answer = failing(1), CommitAction.ANSWER
    assert not t.last.make()
    assert (t.times("commit"), t.times("recover from no answer")) == (1, 0)


def test_from_the_end_of_its_time_on_a_failed_commit_is_not_tried_again() -> None:
    t = Thread()
    fail = failing(1)

    def slow() -> None:
        t.clock.advance(LAST_COMMIT_MS)
        fail()

    t.now = slow
    assert not t.last.make()
    assert t.times("commit") == 1


def test_an_earlier_commit_that_fails_until_the_time_is_up_leaves_no_time_for_the_last_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    t = Thread()
    t.failing = True

    def slow() -> bool:
        t.clock.advance(LAST_COMMIT_MS)
        return False

    t.earlier = slow
    assert not t.last.make()
    assert (t.times("commit"), ("hold", {TASK}) in t.done) == (0, False)
    assert "Kafka hasn't confirmed it in time" in caplog.text


@pytest.mark.parametrize(
    ("rest_ms", "close_timeout_ms", "most_ms"),
    [(float("inf"), 60_000, LAST_COMMIT_MS), (float("inf"), 9_000, 3_000), (300.0, 60_000, 300)],
)
def test_a_retriable_commit_is_repeated_with_pauses_until_its_time_is_up(
    rest_ms: float, close_timeout_ms: int, most_ms: int
) -> None:
    t = Thread(close_timeout_ms)
    t.failing, t.rest_ms = True, rest_ms
    assert not t.last.make()
    assert t.clock.monotonic_ms() == most_ms
    assert t.times("commit") == 1 + most_ms // RETRY_PAUSE_MS


def test_a_retriable_commit_that_succeeds_is_the_last_one() -> None:
    t = Thread()
    t.failing = True

    def second() -> None:
        t.failing = t.times("commit") < 2

    t.now = second
    assert t.last.make()
    assert (t.times("commit"), t.clock.monotonic_ms()) == (2, RETRY_PAUSE_MS)
