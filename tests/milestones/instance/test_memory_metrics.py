"""An instance's memory, as metrics."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from milestones.common.config import StreamsConfig
from milestones.common.memory import Account, MemoryBudget
from milestones.common.metrics import Metrics, Scope
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.testing import StepClock
from milestones.instance.memory_metrics import INTERVAL_MS, MemoryMeasures, resident_bytes

MIB = 1 << 20


def shared() -> MemoryBudget:
    return MemoryBudget(StreamsConfig(application_id="app", bootstrap_servers="a:1", variables={}))


def test_every_account_is_published_with_its_limit_and_what_is_in_none() -> None:
    budget, metrics = shared(), Metrics(StepClock())
    budget.count(lambda: {account: number for number, account in enumerate(Account, 1)})
    budget.join().client_queues_max = 30
    MemoryMeasures(budget, metrics, "client", lambda: 1_000).run_once(0)
    (found,) = metrics.snapshot()["stream-memory-metrics"]
    accounts = metrics.snapshot()["stream-memory-account-metrics"]
    counted = sum(range(1, len(Account) + 1))
    assert found["tags"] == {"client-id": "client"}
    assert found["metrics"] == {
        "resident-bytes": 1_000, "other-bytes": 1_000 - counted, "client-queues-max-bytes": 30,
    }  # fmt: skip
    assert [one["tags"] for one in accounts] == [{"client-id": "client", "account": one.value} for one in Account]
    assert [one["metrics"]["bytes"] for one in accounts] == list(range(1, len(Account) + 1))
    limits = {one["tags"]["account"]: one["metrics"]["limit-bytes"] for one in accounts}
    assert limits["kept_back"] == -1, "it has none"
    assert limits["caches"] == 0, "the caches are off, which is a limit"
    assert limits["input"] == budget.limits()[Account.INPUT] > 0


def test_whoever_finds_the_memory_of_the_process_finds_all_accounts_at_the_start_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics, seen = Metrics(StepClock()), list[tuple[int, int]]()
    measures = MemoryMeasures(shared(), metrics, "client")
    publish, remove = Scope.publish, metrics.remove

    def look() -> None:
        found = metrics.snapshot()
        told = [
            sum(bool(one["metrics"]) for one in found.get(group, ()))
            for group in ("stream-memory-metrics", "stream-memory-account-metrics")
        ]
        seen.append((told[0], told[1]))

    monkeypatch.setattr(Scope, "publish", lambda scope, now_ms: (publish(scope, now_ms), look()))
    monkeypatch.setattr(metrics, "remove", lambda scope: (remove(scope), look()))
    measures.run_once(0)
    assert seen[-1] == (1, len(Account))
    measures.close()
    assert seen[-1] == (0, 0)
    assert {accounts for process, accounts in seen if process} == {len(Account)}


def test_accounts_are_asked_every_few_seconds_however_often_somebody_looks() -> None:
    budget, asked = shared(), list[int]()

    def held() -> dict[Account, int]:
        asked.append(1)
        return {}

    budget.count(held)
    measures = MemoryMeasures(budget, Metrics(StepClock()), "client")
    for now_ms in range(0, 3 * INTERVAL_MS, 100):
        measures.run_once(now_ms)
    assert len(asked) == 3


def test_memory_that_is_taken_is_resident() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 64 * MIB) as taken:
        taken.write(b"x" * (64 * MIB))
        grown = resident_bytes() - before
    assert grown > 48 * MIB


def test_the_engines_of_fifty_tasks_are_counted_while_they_are_open(tmp_path: Path) -> None:
    state = LocalStateManager(StateDirectory(tmp_path, "app", StepClock()), open_engines("rocksdict"), "m1")
    specs = [StoreSpec("counts"), StoreSpec("brief", persistent=False)]
    opened = [state.open(TaskId(0, number), specs) for number in range(50)]
    empty = state.memory().all_bytes
    for one in opened:
        entries = {b"%05d" % number: b"x" * 1_000 for number in range(50)}
        one.apply({spec.name: dict(entries) for spec in specs}, {})
    full = state.memory().all_bytes - empty
    assert 2 * 50 * 50 * 1_000 < full < 4 * 50 * 50 * 1_000
    with opened[0].stores["counts"].engine._namespaces._guard:  # type: ignore[attr-defined]
        assert state.memory().all_bytes - empty < full, "one that is being closed isn't asked"
    for one in opened:
        one.close()
    assert state.memory().all_bytes < empty
    state.release()
