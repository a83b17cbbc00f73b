"""Many tasks on one thread: their stores are opened and closed beside its work; nothing is kept of those that left."""

from __future__ import annotations

from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from milestones.common.records import TaskId
from milestones.stream_thread.tasks import MAKE_MS
from tests.milestones.fakes import FakeTaskStorage, Running, World, counting, passing, put
from tests.milestones.stepped_workers import STAGES

STORE_MS = 100
"""How long the disk takes to open, or to close, the stores of one task."""

def slow(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    open_, close = world.state.open, FakeTaskStorage.close

    def open_slowly(*args: Any) -> Any:
        world.clock.advance(STORE_MS)
        return open_(*args)

    def close_slowly(stores: FakeTaskStorage) -> None:
        world.clock.advance(STORE_MS)
        close(stores)

    monkeypatch.setattr(world.state, "open", open_slowly)
    monkeypatch.setattr(FakeTaskStorage, "close", close_slowly)


class Timed:
    """The turns of a stream thread, by the clock of its world. `longest`: since `feed` was called the last time."""

    def __init__(self, r: Running) -> None:
        self.r, self.longest, self._run_once = r, 0, r.loop.run_once
        r.loop.run_once = self._timed  # type: ignore[method-assign]

    def _timed(self, now_ms: int) -> bool:
        began = self.r.world.clock.monotonic_ms()
        busy = self._run_once(now_ms)
        self.longest = max(self.longest, self.r.world.clock.monotonic_ms() - began)
        return busy

    def feed(self, turns: int) -> int:
        """A record for the first task before each turn; how long the longest one took since the last time."""
        for number in range(turns):
            put(self.r.world, 0, str(number))
            self.r.step(ms=1)
        longest, self.longest = self.longest, 0
        return longest


@pytest.mark.parametrize("stage", STAGES)
def test_a_hundred_tasks_come_and_go_beside_one_that_runs(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    r = STAGES[stage]().run(0)
    slow(monkeypatch, r.world)
    turns = Timed(r)
    before = r.loop._processing.processed
    r.assign(*range(101))
    assert turns.feed(150) <= 2 * MAKE_MS
    assert len(r.tasks.processing) == 101
    r.assign(0)
    assert turns.feed(150) <= 2 * MAKE_MS
    assert (r.tasks.owned, r.world.state.held) == ({TaskId(0, 0)}, {TaskId(0, 0)})
    assert r.loop._processing.processed - before > 200, "the one that runs goes on all the while"


def test_a_hundred_standbys_come_and_go_beside_a_task_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    r = STAGES["baseline"]().run(0)
    slow(monkeypatch, r.world)
    turns = Timed(r)
    r.assign(0, standby=frozenset(TaskId(0, n) for n in range(1, 101)))
    assert turns.feed(150) <= 2 * MAKE_MS
    assert len(r.tasks.standbys) == 100
    r.assign(0)
    assert turns.feed(150) <= 2 * MAKE_MS
    assert r.world.state.held == {TaskId(0, 0)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_thread_that_ends_closes_all_its_tasks_however_long_it_takes(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = STAGES[stage]().run(*range(20))
    slow(monkeypatch, r.world)
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert r.world.state.held == set()


def sizes(root: Any, found: dict[int, int] | None = None, but: frozenset[int] = frozenset()) -> int:
    """How many entries all tables have that can be reached from `root`, the runtime's objects only."""
    found = {} if found is None else found
    if id(root) in found or id(root) in but or isinstance(root, str | bytes | int | type | ModuleType | FunctionType):
        return sum(found.values())
    found[id(root)] = 0
    if isinstance(root, dict):
        children = [*root.keys(), *root.values()]
    elif isinstance(root, list | tuple | set | frozenset) or type(root).__name__ == "deque":
        children = list(root)
    elif isinstance(root, MethodType):
        children = [root.__self__]
    else:
        names = [*vars(root)] if hasattr(root, "__dict__") else []
        names += [n for kind in type(root).__mro__ for n in getattr(kind, "__slots__", ())]
        children = [getattr(root, name, None) for name in names]
        found[id(root)] = -len(children)  # of an object only what its tables have counts
    found[id(root)] += len(children)
    for child in children:
        sizes(child, found, but)
    return sum(max(0, size) for size in found.values())


@pytest.mark.parametrize("topology", [counting, passing])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.timeout(400)
def test_after_a_thousand_tasks_no_table_of_a_thread_has_grown(stage: str, topology: Any) -> None:
    r = STAGES[stage](topology()).run(0)
    world = r.world
    fakes = frozenset(map(id, (world, world.state, world.clients, world.member, world.consumer, world.restorer,
                               world.logs, world.requests, world.events, world.states, world.clock)))  # fmt: skip

    def after(first: int) -> int:
        for n in range(first, first + 500, 10):
            for partition in range(n, n + 10):
                put(world, partition, "a")
            r.assign(*range(n, n + 10))
            r.step(12, ms=60)
            assert len(r.tasks.processing) == 10
        r.assign()
        r.step(12, ms=600)
        return sizes(r.loop, but=fakes | {id(world.producer)})

    once = after(1)
    assert after(501) <= once
