"""Engines' statistics as metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.common.metrics import Metrics
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.engines.rocks import STATISTICS, RocksSettings
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.testing import StepClock
from milestones.m1_state_updater.engine_metrics import EngineMetricsThread

A = TaskId(0, 0)


@pytest.mark.parametrize("engine", ["rocksdict", "rocksdb"])
def test_an_open_store_shows_the_properties_of_its_engine_until_it_is_closed(engine: str, tmp_path: Path) -> None:
    if engine == "rocksdb":
        pytest.importorskip("rocksdb")
    clock = StepClock()
    directory = StateDirectory(tmp_path, "app", clock)
    state = LocalStateManager(directory, open_engines(engine, RocksSettings()), "m1")
    metrics = Metrics(clock)
    observer = EngineMetricsThread("metrics", state.statistics, metrics, clock)
    opened = state.open(A, [StoreSpec("counts"), StoreSpec("brief", persistent=False)])
    opened.apply({"counts": {b"k": b"v"}}, {"counts": 1})
    observer.run_once(0)
    (shown,) = metrics.snapshot()["stream-state-metrics"]
    assert shown["tags"] == {"task-id": "0_0", "rocksdb-state-id": "counts"}
    assert shown["metrics"].keys() == set(STATISTICS)
    assert shown["metrics"]["estimate-num-keys"] == 1
    assert shown["metrics"]["cur-size-all-mem-tables"] > 0
    opened.close()
    observer.run_once(1)
    assert metrics.snapshot() == {}
    state.release()


def test_a_store_that_is_being_closed_is_not_asked(tmp_path: Path) -> None:
    clock = StepClock()
    state = LocalStateManager(StateDirectory(tmp_path, "app", clock), open_engines("rocksdict", RocksSettings()), "m1")
    opened = state.open(A, [StoreSpec("counts")])
    with opened.stores["counts"].engine._namespaces._guard:  # type: ignore[attr-defined]
        assert state.statistics() == {}
    assert state.statistics().keys() == {(A, "counts")}
    opened.close()
    assert state.statistics() == {}
    state.release()


def test_the_thread_ends_when_it_is_asked_to_and_leaves_no_metrics() -> None:
    clock, numbers = StepClock(), {(A, "counts"): dict.fromkeys(STATISTICS, 1)}
    metrics = Metrics(clock)
    observer = EngineMetricsThread("metrics", lambda: numbers, metrics, clock)
    observer.run_once(0)
    observer.start()
    observer.close()
    observer.join(10)
    assert not observer.is_alive()
    assert metrics.snapshot() == {}
