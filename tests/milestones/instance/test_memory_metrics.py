"""An instance's memory, as metrics."""

from __future__ import annotations

import mmap
from pathlib import Path

from milestones.common.config import StreamsConfig
from milestones.common.memory import Account, MemoryBudget
from milestones.common.metrics import Metrics
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


def test_every_account_is_published_beside_what_the_process_has() -> None:
    budget, metrics = shared(), Metrics(StepClock())
    share = budget.join()
    for number, account in enumerate(Account):
        budget.count(account, lambda number=number: number)  # type: ignore[misc]
    share.say(Account.INPUT, 1)
    MemoryMeasures(budget, metrics, "client", lambda: 1_000).run_once(0)
    (found,) = metrics.snapshot()["stream-memory-metrics"]
    assert found["tags"] == {"client-id": "client"}
    assert found["metrics"] == {
        "caches-bytes": 0, "remembered-bytes": 1, "input-bytes": 2, "outputs-bytes": 3, "uncommitted-bytes": 4,
        "waiting-bytes": 5, "kept-back-bytes": 6, "engines-bytes": 7, "client-queues-max-bytes": 8,
        "resident-bytes": 1_000,
    }  # fmt: skip


def test_accounts_are_asked_every_few_seconds_however_often_somebody_looks() -> None:
    budget, asked = shared(), list[int]()
    budget.count(Account.ENGINES, lambda: asked.append(1) or 0)  # type: ignore[func-returns-value]
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
    empty = state.memory_bytes()
    for one in opened:
        entries = {b"%05d" % number: b"x" * 1_000 for number in range(50)}
        one.apply({spec.name: dict(entries) for spec in specs}, {})
    full = state.memory_bytes() - empty
    assert 2 * 50 * 50 * 1_000 < full < 4 * 50 * 50 * 1_000
    with opened[0].stores["counts"].engine._namespaces._guard:  # type: ignore[attr-defined]
        assert state.memory_bytes() - empty < full, "one that is being closed isn't asked"
    for one in opened:
        one.close()
    assert state.memory_bytes() < empty
    state.release()
