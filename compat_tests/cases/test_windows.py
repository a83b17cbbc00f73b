"""Windows that are emitted when they close, by themselves or by suppress: each once, whatever ends a process, or takes
a batch back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import pytest

from compat_tests import ALO, EOS
from compat_tests.cases.closings import CONTINUE, Closings
from compat_tests.cases.steps import (
    COMMIT_STEPS,
    IN_TRANSACTION,
    PATIENT,
    armed,
    await_timed_out,
    commit_steps_of,
    under,
)
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from milestones.testing import NotYet

TIMES, MANY = 3, 17
WINDOWS, SUPPRESSED = "windows", "suppressed"
CLOSING = pytest.mark.parametrize("topology", [WINDOWS, SUPPRESSED])
FLUSHED, COMMITTED = "commit.after-flush", "commit.after-commit"


def closing_at(short: Mapping[tuple[str, str], str]) -> pytest.MarkDecorator:
    """Each topology at each step of a commit; `short`: what the short selection has of them, and under which guarantee.
    Kills and roll-backs share them out, so that both together have all."""
    every = product((WINDOWS, SUPPRESSED), COMMIT_STEPS)
    params = [under(short[at], *at) if at in short else pytest.param(*at, marks=pytest.mark.full) for at in every]
    return pytest.mark.parametrize(("topology", "step"), params)


class Counting:
    """The application, and its input."""

    def __init__(self, world: World, topology: str) -> None:
        self.world, self.closings = world, Closings(world)
        self.app = world.instance(topology, num_stream_threads=1, **CONTINUE)

    def feed_until(self, reached: Callable[[], object], what: str, *, poison: bool = False) -> None:
        """More input for as long as that isn't reached."""

        def fed() -> object:
            self.closings.send(poison=poison)
            return reached()

        self.world.wait(fed, what)

    def killed(self, step: str, times: int, *, poison: bool = False) -> None:
        """So many lives, each ended at the step."""
        for number in range(times):
            self.app.start(fault=f"{step}:kill:{1 + 3 * (number % TIMES)}")
            self.feed_until(lambda: not self.app.running or NotYet("it runs"), "the fault strikes", poison=poison)
            self.app.dies(-9)

    def end(self) -> None:
        """It comes to the end of its input, and is judged."""
        self.closings.send()
        self.world.processed()
        self.closings.emitted_once()
        end_and_judge(self.world, crashed=True)


@closing_at(
    {(WINDOWS, FLUSHED): EOS, (WINDOWS, COMMITTED): ALO, (SUPPRESSED, FLUSHED): ALO, (SUPPRESSED, COMMITTED): EOS}
)
def test_each_window_is_emitted_once_over_kills_at_any_step_of_a_commit(
    world: World, step: str, topology: str
) -> None:
    counting = Counting(world, topology)
    counting.killed(step, TIMES)
    counting.app.start()
    counting.end()


@pytest.mark.full
@pytest.mark.timeout(2_400)
@CLOSING
def test_each_window_is_emitted_once_over_a_hundred_kills_with_failing_records_in_the_batches(
    exact_world: World, topology: str
) -> None:
    counting = Counting(exact_world, topology)
    for step in COMMIT_STEPS:
        counting.killed(step, MANY, poison=True)
    counting.app.start()
    counting.end()


@closing_at(
    {(WINDOWS, FLUSHED): ALO, (WINDOWS, COMMITTED): EOS, (SUPPRESSED, FLUSHED): EOS, (SUPPRESSED, COMMITTED): ALO}
)
def test_each_window_is_emitted_once_over_roll_backs_with_a_failing_record_in_the_batch(
    world: World, step: str, topology: str
) -> None:
    counting = Counting(world, topology)
    app = counting.app.start(fault=armed(step, "abort", TIMES, first=1))

    def rolled_back() -> object:
        found = app.log().count(f"injected at {step}")
        return found >= TIMES or NotYet(f"{found} of {TIMES}")

    counting.feed_until(rolled_back, "commits fail", poison=True)
    counting.end()


@CLOSING
@pytest.mark.parametrize("step", commit_steps_of("commit.after-flush"))
def test_each_window_is_emitted_once_by_a_process_that_was_fenced(
    exact_world: World, step: str, topology: str
) -> None:
    world, counting = exact_world, Counting(exact_world, topology)
    app = counting.app.start(fault=armed(step, "stop", TIMES), **PATIENT)
    for number in range(1, TIMES + 1):
        counting.feed_until(lambda: app.standing or NotYet("it goes on"), "the fault strikes", poison=True)
        await_timed_out(world, number if step in IN_TRANSACTION else 0)
        app.resume()
    counting.end()
