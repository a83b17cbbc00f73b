"""Commits whose answers are late: tasks, the group, threads and the end of the process wait for none of them."""

from __future__ import annotations

import time
from functools import partial

import pytest

from compat_tests.cases.arrivals import Pauses
from compat_tests.cases.calls import Noted
from compat_tests.cases.flows import CALLS
from compat_tests.cases.steps import generation, proxy_of
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Fault, Side
from compat_tests.network.frames import Api
from compat_tests.oracles.rows import Place

pytestmark = pytest.mark.broker_faults

LATE_S, LATE_FOR_S = 8.0, 24.0
PROMPT_S = LATE_S / 2
"""What a busy machine, which reads the notes beside it, makes of 50 ms."""
STANDS_S = 3.0
"""For so long the process waits for the answer, at least."""
STARTED_S = 3.0
"""A batch of records that a thread has begun when it is told to pause."""
PARTITIONS = 4
SETTINGS: Settings = {
    "num_stream_threads": 1, "num_processing_threads": 2, "session_timeout_ms": 60_000,
    "transaction_timeout_ms": 60_000, "request_timeout_ms": 30_000, "producer_socket_timeout_ms": 60_000,
}  # fmt: skip
ENDS = {"exactly_once_v2": Api.END_TXN, "at_least_once": Api.OFFSET_COMMIT}
"""The request that makes a commit."""


@pytest.fixture(autouse=True)
def _stops_nobody(world: World) -> None:
    if not world.has(COLLECTED):
        pytest.skip("its threads wait for commits")


def started(world: World, **settings: object) -> tuple[Instance, Noted]:
    """At work, and reaching the broker through the proxy."""
    world.input("in", PARTITIONS, out=PARTITIONS)
    through_it: Settings = {"bootstrap_servers": proxy_of(world).bootstrap_servers, **SETTINGS, **settings}
    app = world.instance("calls", **through_it).start()
    noted = Noted.of(world)
    noted.send(200)
    world.processed()
    return app, noted


def unanswered(world: World, noted: Noted) -> Fault:
    """A commit whose answer is held, while there is more to commit."""
    fault = proxy_of(world).hold(ENDS[world.guarantee], Side.ANSWER)
    noted.until(lambda: fault.hits > 0, "a commit is under way")
    return fault


class Processed:
    """The input partitions in which a call was made since the last look."""

    def __init__(self, world: World, noted: Noted) -> None:
        self._world, self._noted, self._seen = world, noted, 0

    def __call__(self) -> list[Place]:
        places = {f"r{number}": row.place for number, row in enumerate(self._world.feeds["in"].rows)}
        calls = self._noted.calls()
        new, self._seen = calls[self._seen :], len(calls)
        return [places[name] for name, _ in new if name in places]


def test_tasks_go_on_while_each_answer_to_a_commit_is_seconds_late(world: World) -> None:
    _, noted = started(world)
    pauses = Pauses(Processed(world, noted))

    def load() -> None:
        noted.send(80)
        pauses.look()

    world.let_pass(2, "commits flow", load)
    late = proxy_of(world).delay(LATE_S, ENDS[world.guarantee], Side.ANSWER)
    noted.until(lambda: late.hits > 0, "an answer is late")
    pauses.forget()
    world.let_pass(LATE_FOR_S, "answers are late", load)
    longest = pauses.of(world.cluster.places([world.topic("in")]))
    print(f"{world.stage}: no task with input stood still for longer than {longest:.2f} s")
    late.end()
    end_and_judge(world, CALLS)
    assert noted.again() == {}
    assert longest < PROMPT_S


def test_threads_come_and_go_and_another_instance_joins_while_a_commit_has_no_answer(world: World) -> None:
    app, noted = started(world)
    before = generation(world)
    fault = unanswered(world, noted)
    for change in (Instance.add_thread, Instance.remove_thread, Instance.remove_thread, Instance.add_thread):
        goal = len(noted.calls()) + 50
        change(app)
        noted.until(partial(noted.has_made, goal), "calls are made beside it")
    assert fault.hits == 1
    assert generation(world) == before
    if world.exactly_once:  # the OffsetCommit is of the generation, so that the group waits for it
        settings = {**SETTINGS, "bootstrap_servers": proxy_of(world).bootstrap_servers}
        world.instance("calls", "other", **settings).start()
        noted.until(lambda: generation(world) > before, "both are in the new generation")
        assert fault.hits == 1
    fault.end()
    end_and_judge(world, CALLS)
    assert noted.again() == {}


def test_processing_pauses_and_goes_on_while_a_commit_has_no_answer(world: World) -> None:
    app, noted = started(world)
    fault = unanswered(world, noted)
    app.pause_processing()
    over = time.monotonic() + STARTED_S
    noted.until(lambda: time.monotonic() > over, "records that were begun are done")
    made, over = len(noted.calls()), time.monotonic() + STARTED_S
    noted.until(lambda: time.monotonic() > over, "there is input")
    assert len(noted.calls()) == made
    app.resume_processing()
    noted.until(partial(noted.has_made, made + 50), "calls are made again")
    assert fault.hits == 1
    fault.end()
    end_and_judge(world, CALLS)
    assert noted.again() == {}


@pytest.mark.parametrize("answered", [True, pytest.param(False, marks=pytest.mark.full)], ids=["late", "never"])
def test_a_process_that_is_told_to_stop_while_a_commit_has_no_answer_ends_cleanly(
    world: World, answered: bool
) -> None:
    app, noted = started(world, request_timeout_ms=5_000)
    fault = unanswered(world, noted)
    goal = len(noted.calls()) + 100
    noted.until(partial(noted.has_made, goal), "the next interval is half full")
    app.ask_to_stop()
    over = time.monotonic() + STANDS_S
    world.wait(lambda: time.monotonic() > over, "it waits for the answer", 30)
    assert app.running
    if answered:
        fault.end()
    app.dies(0)
    fault.end()
    app.start()
    end_and_judge(world, CALLS, crashed=not answered)
    if answered:
        assert noted.again() == {}
