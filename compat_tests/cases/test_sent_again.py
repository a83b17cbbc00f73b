"""What a transaction that fails costs: from M5 on nothing is processed again, on earlier stages the whole interval is.

User code notes its calls outside of Kafka, where no roll-back reaches: each record's is made once, or more often.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse
from kio.schema.types import TransactionalId
from kio.static.primitive import i32Timedelta

from compat_tests.cases.calls import Noted
from compat_tests.cases.flows import CALLS
from compat_tests.cases.steps import (
    ENDING,
    IN_TRANSACTION,
    NEXT,
    PATIENT,
    TOLERANT,
    await_timed_out,
    proxy_of,
    standing,
)
from compat_tests.harness.emitting import COLLECTED
from compat_tests.harness.followers import METRICS, PUBLISHED_S, of_all
from compat_tests.harness.instance import Instance, Settings
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World
from compat_tests.network.faults import Side
from compat_tests.network.frames import Api
from compat_tests.oracles.findings import hold
from compat_tests.oracles.in_place import Standing, in_place
from milestones.common.kafka.membership.coordinator import code_of
from milestones.common.kafka.wire import Connector
from milestones.common.kafka.wire_settings import WireSettings
from milestones.testing import NotYet

STEPS = *IN_TRANSACTION, ENDING, NEXT
SHORT = "commit.after-flush", ENDING
SETTINGS: Settings = {**PATIENT, **METRICS, "num_stream_threads": 1}
HALF_FULL = 100
"""Calls that are made beside what has no answer."""
RECOVERED = "recovered in place"
"""What the log says of a producer that was lost."""

steps = pytest.mark.parametrize(
    "step", [step if step in SHORT else pytest.param(step, marks=pytest.mark.full) for step in STEPS]
)


@pytest.fixture(autouse=True)
def _keeps_its_producer(request: pytest.FixtureRequest, exact_world: World) -> None:
    if not exact_world.has(TOLERANT):
        pytest.skip("the tasks are lost with their producer: `test_commit_steps.py`")
    if request.node.callspec.params.get("step") == NEXT and not exact_world.has(COLLECTED):
        pytest.skip("what comes after a commit is no interval of its own")


def started(world: World, fault: str | None = None, **settings: object) -> tuple[Instance, Noted]:
    world.input("in", 2, out=2)
    return world.instance("calls", **{**SETTINGS, **settings}).start(fault=fault), Noted.of(world)


def judge_calls(world: World, app: Instance, noted: Noted, before: Standing, *, lost: bool) -> None:
    """More is processed, and all is exact; each call was made once, or, where an interval is `lost` before M5, again.
    """
    noted.send(200)
    world.processed()
    app.must_live()
    world.let_pass(PUBLISHED_S, "metrics are published")
    in_vain, after = of_all(app, "thread_rolled_back_records_total"), standing(world, app)
    again = noted.again()
    print(f"{world.stage}: {len(noted.times())} records, calls of {len(again)} made again; {in_vain} rolled back")
    end_and_judge(world, CALLS, crashed=True)
    hold(in_place(before, after))
    assert len(noted.times()) == len(world.feeds["in"].rows)
    if world.has(COLLECTED):
        assert (again, in_vain) == ({}, 0)
    elif lost:
        assert again
        assert in_vain


@steps
def test_a_stall_beyond_the_transactions_time_repeats_no_call_of_user_code(exact_world: World, step: str) -> None:
    world = exact_world
    app, noted = started(world, f"{step}:stop:3")
    noted.until(lambda: app.standing, "the fault stops it")
    before = standing(world, app)
    await_timed_out(world, 1 if step in IN_TRANSACTION else 0)
    noted.send(400)
    app.resume()
    judge_calls(world, app, noted, before, lost=step in IN_TRANSACTION)


@steps
def test_a_producer_that_was_lost_to_another_one_repeats_no_call_of_user_code(exact_world: World, step: str) -> None:
    """One takes its transactional id, and goes away."""
    world = exact_world
    app, noted = started(world, f"{step}:stop:3")
    noted.until(lambda: app.standing, "the fault stops it")
    before = standing(world, app)
    fence(world, app)
    noted.send(400)
    app.resume()
    judge_calls(world, app, noted, before, lost=step in IN_TRANSACTION)


@pytest.mark.full
def test_producers_that_are_lost_in_the_midst_of_an_interval_repeat_no_call_of_user_code(exact_world: World) -> None:
    world = exact_world
    app, noted = started(world, commit_interval_ms=700)
    noted.until(world.transactions, "there is a transaction")
    world.processed()
    before = standing(world, app)
    for _ in range(2):
        goal = len(noted.calls()) + 400
        noted.until(partial(noted.has_made, goal), "calls are made")
        fence(world, app)
        noted.send(400)
        world.processed()
    judge_calls(world, app, noted, before, lost=True)


def fence(world: World, app: Instance) -> None:
    """Another producer takes the transactional id, once, which ends what its owner has open. (A client would ask again
    while that ends, and take the id from its owner's next producer, too.)"""
    (id,) = {one.id for one in world.transactions()}
    request = InitProducerIdRequest(
        transactional_id=TransactionalId(id), transaction_timeout=i32Timedelta.parse(timedelta(minutes=1))
    )
    settings = WireSettings.of({"bootstrap.servers": world.cluster.bootstrap_servers})
    known = app.log().count(RECOVERED)
    with closing(Connector(settings)(settings.bootstrap[0])) as wire:

        def taken() -> object:
            code = code_of(wire.call(request, InitProducerIdResponse, 10_000))
            assert code in (ErrorCode.none, ErrorCode.concurrent_transactions)
            # While a transaction is being committed nothing is taken, else the answer means that it is aborted first.
            return code is ErrorCode.none or await_word(world, app, known) or NotYet("the id isn't free yet")

        world.wait(taken, f"another producer takes {id}")


def await_word(world: World, app: Instance, known: int) -> bool:
    """Whether the instance says within a second that it has lost a producer more."""
    for _ in range(20):
        if app.log().count(RECOVERED) > known:
            return True
        world.let_pass(0.05, "the instance finds out")
    return False


@pytest.mark.broker_faults
@pytest.mark.parametrize("side", [Side.ANSWER, Side.REQUEST], ids=["found made", "found rolled back"])
def test_a_commit_that_is_never_answered_repeats_no_call_of_user_code_with_the_next_interval_half_full(
    exact_world: World, side: Side
) -> None:
    world = exact_world
    proxy = proxy_of(world)
    app, noted = started(
        world, bootstrap_servers=proxy.bootstrap_servers, session_timeout_ms=60_000, transaction_timeout_ms=8_000,
        producer_socket_timeout_ms=2_000,
    )  # fmt: skip
    noted.send(300)
    world.processed()
    before = standing(world, app)
    begins = proxy.delay(0, Api.INIT_PRODUCER_ID)
    ends = proxy.lose(Api.END_TXN, side)
    noted.until(lambda: ends.hits > 0, "the network meets a commit")
    beside_it(world, app, noted, lambda: begins.hits > 0)
    ends.end()
    judge_calls(world, app, noted, before, lost=side is Side.REQUEST)


def beside_it(world: World, app: Instance, noted: Noted, over: Callable[[], bool]) -> None:
    """Until then there is input; calls are made."""
    made = len(noted.calls())

    def half_full() -> object:
        beside = len(noted.calls()) - made
        if beside < HALF_FULL:
            noted.send()
        return (over() and beside >= HALF_FULL) or NotYet(f"{beside} calls were made beside it")

    world.wait(half_full, "the commit is given up, and the next interval is half full")
    app.must_live()
