"""What listeners of restoration are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.kafka.consumers import Fetched
from milestones.instance.listeners import StandbyUpdateListener, StateRestoreListener, SuspendReason
from milestones.m1_state_updater import updater as updating
from tests.milestones.fakes import LOG, A, Running, World
from tests.milestones.stepped_workers import STAGES

STORE = LOG, "counts"


def noting(calls: list[tuple[Any, ...]], kind: type) -> Any:
    """A listener that notes each call."""
    names = [name for name in vars(kind) if name.startswith("on_")]

    def note(name: str) -> Any:
        return lambda self, *args: calls.append((name, *args))

    return type("Noting", (kind,), {name: note(name) for name in names})()


@pytest.fixture(params=["baseline", "m1"])
def r(request: pytest.FixtureRequest) -> Running:
    running = STAGES[request.param]()
    running.world.logs[LOG].add("1", "2", "3", key="k")
    return running


def listen(r: Running) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    r.world.context.listeners.restore = noting(calls, StateRestoreListener)
    r.world.context.listeners.standby = noting(calls, StandbyUpdateListener)
    return calls


def test_a_restoration_is_told_from_its_start_to_its_end(r: Running) -> None:
    calls = listen(r)
    r.run(0)
    assert calls == [
        ("on_restore_start", *STORE, 0, 3),
        ("on_batch_restored", *STORE, 2, 3),
        ("on_restore_end", *STORE, 3),
    ]


def test_a_store_that_has_all_starts_and_ends_at_once(r: Running) -> None:
    del r.world.logs[LOG]
    calls = listen(r)
    r.run(0)
    assert calls == [("on_restore_start", *STORE, 0, 0), ("on_restore_end", *STORE, 0)]


def test_a_task_that_goes_while_it_restores_is_suspended(r: Running) -> None:
    calls = listen(r)
    r.world.restorer.next.extend([Fetched()] * 50)
    r.rebalance(0, steps=3)
    r.rebalance(steps=2)
    assert calls == [("on_restore_start", *STORE, 0, 3), ("on_restore_suspended", *STORE, 0)]


def test_a_standby_is_told_of_until_it_is_promoted(r: Running) -> None:
    calls = listen(r)
    r.rebalance(standby=frozenset({A}), steps=4)
    r.rebalance(0, steps=8)
    assert calls == [
        ("on_update_start", *STORE, 0),
        ("on_batch_loaded", *STORE, A, 2, 3, 3),
        ("on_update_suspended", *STORE, 3, 3, SuspendReason.PROMOTED),
        ("on_restore_start", *STORE, 3, 3),
        ("on_restore_end", *STORE, 0),
    ]


def test_a_standby_that_goes_elsewhere_has_migrated(r: Running) -> None:
    calls = listen(r)
    r.rebalance(standby=frozenset({A}), steps=4)
    r.rebalance(steps=2)
    assert calls[-1] == ("on_update_suspended", *STORE, 3, 3, SuspendReason.MIGRATED)


def test_a_listener_that_raises_is_logged_and_changes_nothing(r: Running, caplog: pytest.LogCaptureFixture) -> None:
    class Bad(StateRestoreListener):
        def on_restore_start(self, *_: Any) -> None:
            raise RuntimeError("a user's bug")

    r.world.context.listeners.restore = Bad()
    r.run(0)
    assert "a listener of restoration raised" in caplog.text


def test_listeners_that_the_updaters_thread_calls_are_callbacks_of_its_stream_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may close the client, which doesn't wait for them then."""
    world, helped = World(), list[int | None]()

    class Listening:
        stopping = False

        def __init__(self, *_: Any) -> None: ...

        def run_once(self, now_ms: int) -> bool:
            helped.append(world.context.thread_registry.helped())
            self.stopping = True
            return True

        def close(self) -> None: ...

    monkeypatch.setattr(updating, "StateUpdater", Listening)
    handover: Any = SimpleNamespace(name="updater", end=lambda failure: None)
    thread = updating.UpdaterThread(world.context, world.clients, handover)
    thread.start()
    thread.join(10)
    assert helped == [world.context.number]
    assert world.context.thread_registry.helpers(world.context.number) == frozenset()
