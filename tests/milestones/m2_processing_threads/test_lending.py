"""The stream thread's loop, lent to the processing thread: both are real threads here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from milestones.common.clock import SystemClock
from milestones.common.errors import OwnershipError
from milestones.common.kafka.clients import Owned
from milestones.common.testing.clock import StepClock
from milestones.m2_processing_threads.lending import CALM_MS, LOOK_MS, LoopLending
from milestones.m2_processing_threads.scheduler import wait

LONG_S = 20.0


class Client(Owned):
    """A client of the thread that makes it."""

    def use(self) -> None:
        self._check_owner()


class Turns:
    """A loop. `made`: the thread of each turn; `at`: called in the midst of one."""

    def __init__(self) -> None:
        self.steady = True
        self.client = Client()
        self.made: list[threading.Thread] = []
        self.at: Callable[[], object] = lambda: None
        self._one = threading.Lock()

    def run_once(self, now_ms: int) -> bool:
        assert self._one.acquire(blocking=False), "two threads are in a turn"
        try:
            self.client.use()
            self.made.append(threading.current_thread())
            self.at()
            return False
        finally:
            self._one.release()


class Worker(threading.Thread):
    """A processing thread: leases, one after the other, and turns. `at`: called in the midst of a lease; `rests_until`:
    before so many turns there is no lease."""

    def __init__(self, lending: LoopLending) -> None:
        super().__init__(name="app-ProcessingThread-1-1", daemon=True)
        self.lending, self.rests_until, self.over = lending, 0, False
        self.at: Callable[[], object] = lambda: None
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            turns = 0
            while not self.over:
                if turns >= self.rests_until:
                    self.lending.works(calls=True)
                    self.at()
                turns += self.lending.turn(idle=True)
        except BaseException as error:
            self.failed = error


class Lent:
    """The calling thread is the stream thread, beside a processing thread."""

    def __init__(self) -> None:
        self.alone, self.calls = True, 0
        self.turns = Turns()
        self.lending = LoopLending(SystemClock(), lambda: self.alone, self._called, wait)
        self.worker = Worker(self.lending)

    def _called(self) -> None:
        self.calls += 1

    def drive_until(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + LONG_S
        while not holds():
            assert time.monotonic() < until_s, "it never holds"
            self.lending.run_turn(self.turns)

    def made_by(self, thread: threading.Thread) -> int:
        return self.turns.made.count(thread)


@pytest.fixture
def lent() -> Iterator[Lent]:
    made = Lent()
    made.worker.start()
    yield made
    made.worker.over = True
    made.worker.join(LONG_S)
    assert made.worker.failed is None


@contextmanager
def in_a_long_call(lent: Lent) -> Iterator[None]:
    """The processing thread is in a call that doesn't return before the block is over."""
    entered, over = threading.Event(), threading.Event()

    def call() -> None:
        entered.set()
        assert over.wait(LONG_S)

    lent.worker.at = call
    lent.drive_until(entered.is_set)
    yield
    lent.worker.at = lambda: None
    over.set()


def test_while_calls_are_short_the_processing_thread_makes_the_turns_with_the_stream_threads_clients(
    lent: Lent,
) -> None:
    lent.drive_until(lambda: lent.made_by(lent.worker) > 100)
    assert lent.made_by(threading.current_thread()) == 0
    assert lent.calls == 1, "it may have been asleep"


def test_while_a_call_lasts_the_stream_thread_makes_the_turns_and_lends_them_again_afterwards(lent: Lent) -> None:
    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)
    with in_a_long_call(lent):
        lent.drive_until(lambda: lent.made_by(threading.current_thread()) > 100)
    lent.turns.made.clear()
    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)


def test_a_call_after_a_long_rest_is_noticed_as_soon(lent: Lent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milestones.m2_processing_threads.lending.NAP_MS", 1_000_000)
    monkeypatch.setattr("milestones.m2_processing_threads.lending.CALM_MS", 50)
    lent.turns.at = partial(SystemClock().sleep_ms, 1)  # as a fetch that finds nothing
    lent.worker.rests_until = 200
    with in_a_long_call(lent):
        lent.drive_until(lambda: lent.made_by(threading.current_thread()) > 0)


def test_the_error_of_a_turn_is_the_stream_threads_and_the_loop_is_back(lent: Lent) -> None:
    def fail() -> None:
        lent.turns.at = lambda: None
        raise RuntimeError("of a turn")

    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)
    lent.turns.at = fail
    with pytest.raises(RuntimeError, match="of a turn"):
        lent.drive_until(lambda: False)
    assert not lent.lending.lent
    assert lent.lending.take_back_loop() is None, "it is raised once"


def test_a_loop_that_has_a_recovery_or_rebalance_to_see_to_is_back_at_once(lent: Lent) -> None:
    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)
    lent.turns.steady = False
    lent.drive_until(lambda: lent.made_by(threading.current_thread()) > 10)
    assert not lent.lending.lent
    lent.turns.steady = True
    lent.turns.made.clear()
    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)


def test_nothing_is_lent_where_several_threads_work(lent: Lent) -> None:
    lent.alone = False
    lent.drive_until(lambda: len(lent.turns.made) > 100)
    assert lent.made_by(lent.worker) == 0


def test_a_stream_thread_that_ends_waits_for_the_turn_under_way_and_hears_of_its_error(lent: Lent) -> None:
    entered, over = threading.Event(), threading.Event()

    def fail() -> None:
        entered.set()
        assert over.wait(LONG_S)
        lent.turns.at = lambda: None
        raise RuntimeError("of the last turn")

    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)
    lent.turns.at = fail
    assert entered.wait(LONG_S)
    threading.Timer(0.05, over.set).start()
    error = lent.lending.take_back_loop()
    assert str(error) == "of the last turn"
    assert not lent.lending.lent
    made = len(lent.turns.made)
    assert not lent.lending.turn(idle=True)
    assert len(lent.turns.made) == made


def test_a_thread_that_never_comes_for_the_loop_has_it_taken_back() -> None:
    made = Lent()
    made.drive_until(lambda: made.made_by(threading.current_thread()) > 0)
    assert not made.lending.lent


def test_a_client_is_used_by_the_thread_that_stands_in_for_its_owner_and_by_no_other(lent: Lent) -> None:
    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)
    refused: list[BaseException] = []

    def use() -> None:
        try:
            lent.turns.client.use()
        except OwnershipError as error:
            refused.append(error)

    lent.worker.at = use
    lent.drive_until(lambda: bool(refused))


def test_a_call_of_minutes_leaves_the_turns_to_the_stream_thread_all_the_while() -> None:
    clock, turns = StepClock(), Turns()
    lending = LoopLending(clock, lambda: True, lambda: None, lambda _, ms: clock.advance(ms))
    lending.works(calls=True)
    clock.advance(LOOK_MS)
    turns.at = partial(clock.advance, 10)
    for _ in range(10_000):
        lending.run_turn(turns)
    assert len(turns.made) == 10_000
    assert not lending.turn(idle=False), "the call is over"
    lending.run_turn(turns)
    assert len(turns.made) == 10_000, "it is lent again"


class Looks:
    """A stream thread that drives a loop by a step clock, beside a thread whose leases are short, but for those that
    are told to last."""

    def __init__(self) -> None:
        self.clock, self.turns, self._lasts = StepClock(1_000_000), Turns(), False
        self.lending = LoopLending(self.clock, lambda: True, lambda: None, self._wait)

    def _wait(self, _: object, ms: int) -> None:
        for _ in range(ms):
            self.clock.advance(1)
            if not self._lasts:
                self.lending.works(calls=True)
                self.lending.turn(idle=True)

    def lasts(self, ms: int, *, calls: bool) -> int:
        """A lease of so long; returns the number of turns that the stream thread made meanwhile."""
        self.calm(1)
        self.lending.works(calls=calls)
        self._lasts = True
        self.turns.made.clear()
        self.turns.at = partial(self.clock.advance, 1)
        until_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < until_ms:
            self.lending.run_turn(self.turns)
        self.turns.at = lambda: None
        self._lasts = False
        made = len(self.turns.made)
        self.lending.turn(idle=False)
        return made

    def calm(self, ms: int) -> None:
        """The stream thread drives the loop for so long, and no lease lasts."""
        until_ms = self.clock.monotonic_ms() + ms
        while self.clock.monotonic_ms() < until_ms:
            if not self.lending.lent:
                self.clock.advance(1)
            self.lending.run_turn(self.turns)


def test_what_commits_write_however_long_has_the_loop_lent_again_at_once() -> None:
    looks = Looks()
    for _ in range(20):
        assert looks.lasts(5 * LOOK_MS, calls=False) > LOOK_MS
        looks.calm(1)
        assert looks.lending.lent


def test_of_calls_that_last_the_second_one_within_a_while_keeps_the_loop() -> None:
    looks = Looks()
    for lent in (True, False, False):
        assert looks.lasts(5 * LOOK_MS, calls=True) > LOOK_MS
        looks.calm(1)
        assert looks.lending.lent is lent
        looks.calm(CALM_MS)
        assert looks.lending.lent
    looks.calm(2 * CALM_MS)
    assert looks.lasts(5 * LOOK_MS, calls=True) > LOOK_MS
    looks.calm(1)
    assert looks.lending.lent, "it is the first one in a while"


def test_a_client_that_is_made_in_a_lent_turn_is_the_stream_threads(lent: Lent) -> None:
    def make() -> None:
        lent.turns.client = Client()

    lent.turns.at = make
    lent.drive_until(lambda: lent.made_by(lent.worker) > 0)
    lent.turns.at = lambda: None
    assert lent.lending.take_back_loop() is None
    lent.turns.client.use()
