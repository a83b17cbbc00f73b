"""The memory budget of an instance: parts of bounds, and what is held."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.memory import BOUNDS, Account, MemoryBudget
from tests.sources import SHIPPED, parsed

BOUND = 1_000_000


def budget(**settings: Any) -> MemoryBudget:
    return MemoryBudget(StreamsConfig(application_id="app", bootstrap_servers="a:1", variables={}, **settings))


def test_every_bound_that_a_config_has_for_an_instance_is_shared_out_by_its_budget() -> None:
    assert set(Account) - BOUNDS.keys() == {Account.KEPT_BACK, Account.ENGINES, Account.CLIENT_QUEUES}


@pytest.mark.parametrize("account", BOUNDS)
@pytest.mark.parametrize("tasks", [1, 50])
def test_the_parts_of_fifty_tasks_of_each_thread_make_no_more_than_the_bound_whoever_comes_and_goes(
    account: Account, tasks: int
) -> None:
    shared = budget(**{BOUNDS[account]: BOUND})
    shares = []
    for threads in range(1, 65):
        shares.append(shared.join())
        together = sum(share.part(account, among=tasks) * tasks for share in shares)
        assert 0.99 * BOUND - threads * tasks <= together <= BOUND
    for share in shares[1:]:
        share.leave()
        share.leave()
    assert shares[0].part(account, among=tasks) == BOUND // tasks


@pytest.mark.parametrize(("bound", "part"), [(-1, 1 << 62), (0, 0), (1, 1), (7, 1), (700, 70)])
def test_a_part_is_a_byte_at_least_unless_nothing_may_be_held_and_no_bound_has_no_parts(bound: int, part: int) -> None:
    shared = budget(statestore_uncommitted_max_bytes=bound)
    shares = [shared.join() for _ in range(10)]
    assert {share.part(Account.UNCOMMITTED) for share in shares} == {part}


def test_what_is_held_is_what_the_sharers_said_last_without_those_that_left() -> None:
    shared = budget()
    one, other = shared.join(), shared.join()
    one.say(Account.INPUT, 3)
    one.say(Account.INPUT, 5)
    other.say(Account.INPUT, 7)
    other.say(Account.OUTPUTS, 11)
    assert (shared.held()[Account.INPUT], shared.held()[Account.OUTPUTS]) == (12, 11)
    other.leave()
    assert (shared.held()[Account.INPUT], shared.held()[Account.OUTPUTS]) == (5, 0)


def test_pools_and_what_counts_itself_are_asked() -> None:
    shared = budget(statestore_cache_max_bytes=BOUND)
    shared.count(Account.ENGINES, lambda: 17)
    taken = shared.join().record_caches.take(5_000)
    assert (shared.held()[Account.ENGINES], shared.held()[Account.CACHES]) == (17, taken)
    assert shared.held().keys() == set(Account)


def test_nobody_but_the_budget_divides_memory_by_the_number_of_threads() -> None:
    reckoning = (ast.Div, ast.FloorDiv, ast.Mod, ast.Mult)
    found = {
        f"{path}:{node.lineno}"
        for path, tree in parsed(*SHIPPED).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, reckoning) and "live.threads" in ast.unparse(node)
    }
    assert not found


def test_nobody_but_the_budget_reads_how_much_an_instance_may_hold() -> None:
    """The test driver is an instance of its own; the audit only asks whether there are caches; M5 only says that the
    bound of caches changes no output there."""
    found = {
        path
        for path, tree in parsed(*SHIPPED).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in BOUNDS.values()
    }
    assert found == {
        "common/testing/driver.py",
        "milestones/m5_committed_collector/state.py",
        "pipeline/audit/planning.py",
    }
