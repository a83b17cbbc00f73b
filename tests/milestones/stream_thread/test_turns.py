"""What a turn of the loop looks at follows what has changed, not how many tasks there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.records import Record, TaskId, TopicPartition
from milestones.common.task.buffers import InputBuffer
from milestones.common.task.task import Task
from milestones.common.topology import Processor
from milestones.m2_processing_threads.runnable_tasks import PATROL
from milestones.stream_thread.loop import REPORT_INTERVAL_MS
from tests.milestones.fakes import Running, counting, put
from tests.milestones.stepped_workers import STAGES

TASKS, COMMIT_MS = 60, 200
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


class Watch:
    """Which tasks anything was asked of, the records that wait for them included."""

    def __init__(self) -> None:
        self.seen: set[TaskId] = set()
        self._of = {Task: lambda task: task.id, InputBuffer: lambda buffer: TaskId(0, buffer.partition.partition)}

    @contextmanager
    def on(self) -> Iterator[Watch]:
        with pytest.MonkeyPatch.context() as patch:
            for kind, id_of in self._of.items():
                patch.setattr(kind, "__getattribute__", self._noted(id_of), raising=False)
            yield self

    def _noted(self, id_of: Callable[[Any], TaskId]) -> Callable[[Any, str], Any]:
        def get(one: Any, name: str) -> Any:
            if name not in ("id", "partition"):
                self.seen.add(id_of(one))
            return object.__getattribute__(one, name)

        return get


def others(stage: str) -> int:
    """Tasks that a turn looks at of which nothing was told."""
    return 2 * PATROL if stage == "m2" else 0


def settled(stage: str) -> Running:
    """A thread with all its tasks, shortly after a report, with nothing left to do."""
    r = STAGES[stage](commit_interval_ms=COMMIT_MS).run(*range(TASKS))
    r.step(4 * TASKS, ms=10)  # with processing threads a task is initialised after the other
    while r.loop._next_report_ms - r.world.clock.monotonic_ms() < REPORT_INTERVAL_MS:
        r.step(ms=1)
    return r


def seen_in_turns(r: Running, turns: int) -> list[set[TaskId]]:
    """Per turn the tasks that it has looked at."""
    found = []
    for _ in range(turns):
        with Watch().on() as watch:
            r.step(ms=1)
        found.append(watch.seen)
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_a_turn_without_input_looks_at_none_of_sixty_tasks_but_a_few_in_turns(stage: str) -> None:
    r = settled(stage)
    assert max(map(len, seen_in_turns(r, 20))) <= others(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_a_turn_looks_at_the_tasks_that_got_input(stage: str) -> None:
    r = settled(stage)
    fed = {TaskId(0, 7), TaskId(0, 41)}
    for _ in range(5):
        for id in fed:
            put(r.world, id.partition, "a")
        seen = seen_in_turns(r, 3)
        assert set().union(*seen) >= fed
        assert max(len(one - fed) for one in seen) <= others(stage)
    assert r.loop._processing.processed == 10


@pytest.mark.parametrize("stage", STAGES)
def test_a_commit_that_is_due_looks_at_no_more_than_has_changed_since_the_last_one(stage: str) -> None:
    r = settled(stage)
    put(r.world, 7, "a")
    commits = r.loop._commits.commits
    seen = seen_in_turns(r, COMMIT_MS)
    assert r.loop._commits.commits == commits + 1
    assert max(len(one - {TaskId(0, 7)}) for one in seen) <= others(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_what_sixty_tasks_make_in_any_order_is_all_sent_and_committed(stage: str) -> None:
    r = settled(stage)
    for number in range(3 * TASKS):
        put(r.world, number * 7 % TASKS, "a")
        r.step(ms=3)
    r.step(4 * TASKS, ms=10)
    assert r.loop._processing.processed == 3 * TASKS
    assert {r.world.producer.committed[TopicPartition("in", n)].offset for n in range(TASKS)} == {3}
    counts = [r.world.state.content(TaskId(0, n)) for n in range(TASKS)]
    assert counts == [{b"k": serdes.LONG.serialize("", 3)}] * TASKS


# -- wall-clock punctuations come in time, though no turn looks at a task that isn't due


class Ticking(Processor):
    """Has a punctuation each minute; `calls` tells when."""

    calls: list[int]

    def init(self, context: Any) -> None:
        super().init(context)
        self.context.schedule(MINUTE_MS, "wall-clock-time", self.calls.append)

    def process(self, record: Record) -> None:
        raise AssertionError("there is no input")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    monkeypatch.setattr(Ticking, "calls", made, raising=False)
    return made


def ticking(stage: str) -> Running:
    r = STAGES[stage](counting(processor=Ticking)).run(0)
    r.step(5, ms=100)
    return r


def put_back(r: Running) -> int:
    """The wall clock shows what it showed an hour ago: this."""
    shown: int = r.world.clock.wall_ms() - HOUR_MS
    r.world.clock.set_wall_ms(shown)
    return shown


@pytest.mark.parametrize("stage", STAGES)
def test_after_the_clock_was_put_back_the_first_call_comes_after_one_interval(stage: str, calls: list[int]) -> None:
    r = ticking(stage)
    began_ms = put_back(r)
    r.step(62, ms=1_000)
    assert len(calls) == 1
    assert calls[0] <= began_ms + MINUTE_MS + 1_000


@pytest.mark.parametrize("stage", STAGES)
def test_a_clock_that_was_put_back_during_a_pause_holds_up_no_punctuation_after_it(
    stage: str, calls: list[int]
) -> None:
    r = ticking(stage)
    r.world.context.thread_registry.pause({0})
    r.step(2)
    put_back(r)
    r.step(2)
    r.world.context.thread_registry.resume({0})
    r.step(62, ms=1_000)
    assert len(calls) == 1
