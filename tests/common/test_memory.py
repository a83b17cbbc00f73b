"""The memory budget of an instance: parts of bounds, and what is held."""

from __future__ import annotations

import ast
import threading
from typing import Any

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.memory import LIMITS, Account, MemoryBudget
from milestones.common.memory.report import report
from tests.sources import SHIPPED, parsed

BOUND = 1_000_000


def budget(**settings: Any) -> MemoryBudget:
    return MemoryBudget(StreamsConfig(application_id="app", bootstrap_servers="a:1", variables={}, **settings))


def test_every_bound_that_a_config_has_for_an_instance_is_shared_out_by_its_budget() -> None:
    others = {"program", "kept_back", "block_cache", "memtables", "table_readers", "stores_in_memory", "changed_keys"}
    assert {account.value for account in set(Account) - LIMITS.keys()} == others


@pytest.mark.parametrize("account", LIMITS)
@pytest.mark.parametrize("tasks", [1, 50])
def test_the_parts_of_fifty_tasks_of_each_thread_make_no_more_than_the_bound_whoever_comes_and_goes(
    account: Account, tasks: int
) -> None:
    shared = budget(**{LIMITS[account]: BOUND})
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
    shared.count(lambda: {Account.MEMTABLES: 17, Account.BLOCK_CACHE: 4})
    shared.count(lambda: {Account.MEMTABLES: 3})
    taken, held = shared.join().record_caches.take(5_000), shared.held()
    assert (held[Account.MEMTABLES], held[Account.BLOCK_CACHE], held[Account.CACHES]) == (20, 4, taken)
    assert held.keys() == set(Account)


def test_what_the_instance_itself_has_takes_no_part_from_its_threads() -> None:
    shared = budget(input_buffer_max_bytes=BOUND)
    share = shared.join()
    shared.own.say(Account.PROGRAM, 40)
    assert shared.held()[Account.PROGRAM] == 40
    assert share.part(Account.INPUT) == BOUND


def test_an_account_has_a_limit_if_a_setting_or_a_library_keeps_one() -> None:
    shared = budget(statestore_uncommitted_max_bytes=-1, input_buffer_max_bytes=BOUND)
    shared.limit(Account.BLOCK_CACHE, 64)
    limits = shared.limits()
    assert (limits[Account.INPUT], limits[Account.BLOCK_CACHE]) == (BOUND, 64)
    assert Account.UNCOMMITTED not in limits, "it has no limit"


def test_the_limits_of_the_clients_queues_are_added_up_and_leave_with_their_threads() -> None:
    shared = budget()
    shared.own.client_queues_max = 1
    one, other = shared.join(), shared.join()
    one.client_queues_max, other.client_queues_max = 10, 20
    assert shared.client_queues_max() == 31
    other.leave()
    assert shared.client_queues_max() == 11


def test_a_report_adds_up_to_the_resident_memory() -> None:
    shared = budget(input_buffer_max_bytes=7)
    shared.count(lambda: {account: number for number, account in enumerate(Account)})
    found = report(shared, 1_000)
    assert found.other + sum(account.bytes for account in found.accounts.values()) == found.resident == 1_000
    assert (found.accounts["input"].limit, found.accounts["kept_back"].limit) == (7, None)
    assert report(shared, 5).other < 0, "the estimates are too high"


def test_two_threads_that_report_at_once_lose_no_number() -> None:
    share = budget().join()
    accounts = list(Account)[:8]

    def reports(account: Account) -> None:
        for number in range(2_000):
            share.say(account, number)

    threads = [threading.Thread(target=reports, args=(account,)) for account in accounts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {share.held()[account] for account in accounts} == {1_999}


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
        if isinstance(node, ast.Attribute) and node.attr in LIMITS.values()
    }
    assert found == {
        "common/testing/driver.py",
        "milestones/m5_committed_collector/state.py",
        "pipeline/audit/planning.py",
    }
