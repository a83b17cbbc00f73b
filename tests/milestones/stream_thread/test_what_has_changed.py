"""Anything at any time on a thread with fifty tasks: a turn that looks at changed tasks only knows what a look at all
tasks would find, and the end is exact.

The checks compare what each part remembers with the tasks themselves, after every turn.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from milestones.common import serdes
from milestones.common.errors import StateCorruptError, TaskCorruptedError
from milestones.common.records import Record, StoreId, TaskId, TopicPartition
from milestones.common.task.task import Task
from milestones.common.topology import Processor
from milestones.stream_thread.task_registry import Phase
from tests.milestones.disturber import Disturber
from tests.milestones.fakes import CHANGELOG, Running, counting, put
from tests.milestones.stepped import UpdaterWorld
from tests.milestones.stepped_workers import STAGES, RunningProcessing, with_ledger

TASKS, TURNS, LAST_TURNS = 50, 250, 3_000
TOPICS = ("in", "other")
TICK = "tick"
BUFFERED = 5


class Busy(Processor):
    """Counts per key; by the value it emits, asks for a commit, and schedules a punctuation, which writes too."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("counts")

    def process(self, record: Record) -> None:
        count, number = (self.store.get(record.key) or 0) + 1, int(record.value)
        self.store.put(record.key, count)
        if number % 3:
            self.context.forward(record.with_value(count))
        if number % 7 == 0:
            self.context.commit()
        if number % 5 == 0:
            self.context.schedule(50 + number % 300, "wall-clock-time", self.tick)

    def tick(self, now_ms: int) -> None:
        self.store.put(TICK, (self.store.get(TICK) or 0) + 1)


def running(stage: str, seed: int, *, cached: bool) -> Running:
    """A thread of the stage, with bounds that are reached on every second seed, or on two of four."""
    r = STAGES[stage](
        counting(TOPICS, Busy, cached=cached), num_processing_threads=1 + seed % 3, commit_interval_ms=50,
        max_task_idle_ms=seed % 3 * 20, statestore_cache_max_bytes=100_000 if cached else 0,
        buffered_records_per_partition=BUFFERED, input_buffer_max_bytes=(100_000_000, 20_000)[seed % 2],
        statestore_uncommitted_max_bytes=(10_000_000, 3_000)[seed // 2 % 2],
    )  # fmt: skip
    with_ledger(r.world)
    return r


class Everything(Disturber):
    """Does anything to fifty tasks, by seed; `sent`: how often each key was, by partition."""

    def __init__(self, r: Running, seed: int) -> None:
        super().__init__(r, seed)
        self.number = 0
        self.sent: dict[int, Counter[str]] = {partition: Counter() for partition in range(TASKS)}
        self.actions = [
            self.rebalance, self.rebalance, self.hold_offsets, self.hold_bounds, self.lock, self.lose, self.fail,
            self.pause, self.roll_back, self.damage, self.turn_clock, self.control, self.hang,
            *[self.feed] * 20, *[lambda: None] * 20,
        ]  # fmt: skip

    def rebalance(self) -> None:
        active = self.rng.sample(range(TASKS), self.rng.randrange(TASKS + 1))
        rest = (TaskId(0, partition) for partition in range(TASKS) if partition not in active)
        self.r.rebalance(*active, standby=frozenset(id for id in rest if self.rng.random() < 0.4))
        if self.rng.random() < 0.8:
            super().calm()  # most tasks should get somewhere

    def lock(self) -> None:
        self.world.state.locked = {TaskId(0, partition) for partition in self.rng.sample(range(TASKS), 3)}

    def feed(self) -> None:
        for _ in range(self.rng.randrange(40)):
            self.number += 1
            partition, key = self.rng.randrange(TASKS), f"k{self.rng.randrange(3)}"
            put(self.world, partition, str(self.number), key=key, topic=self.rng.choice(TOPICS))
            self.sent[partition][key] += 1

    def control(self) -> None:
        self.world.logs[TopicPartition(self.rng.choice(TOPICS), self.rng.randrange(TASKS))].control(1)

    def roll_back(self) -> None:
        self.r.loop._recoveries.recover(TaskCorruptedError("a test", []), 0)

    def damage(self) -> None:
        if ids := sorted(self.r.tasks.processing):
            self.r.loop._recoveries.recover(StateCorruptError("a test", [StoreId(self.rng.choice(ids), "counts")]), 0)

    def turn_clock(self) -> None:
        self.world.clock.set_wall_ms(self.world.clock.wall_ms() + self.rng.choice([-5_000, 3_000]))

    def hang(self) -> None:
        if isinstance(self.world, UpdaterWorld):
            self.world.openers.hang = self.rng.random() < 0.5

    def calm(self) -> None:
        super().calm()
        if isinstance(self.world, UpdaterWorld):
            self.world.openers.hang = False


class Look:
    """Looks at all tasks of a thread after a turn, and compares. `over`: for how many turns a full partition has been
    fetched."""

    def __init__(self, r: Running, stage: str) -> None:
        self.r, self.loop, self.threaded = r, r.loop, stage == "m2"
        self.processing: Any = r.loop._processing
        self.over = Counter[TopicPartition]()

    def told(self) -> set[Task]:
        """The tasks that the next turn is told of."""
        if self.threaded:
            scheduler = self.processing._scheduler
            tasks = {*scheduler._changed, *(scheduled.task for scheduled in scheduler._leased)}
        else:
            tasks = {*self.processing._changed}
        return {*tasks, *self.loop._inputs._changed, *self.loop._commits._over}

    def compare(self) -> None:
        uncommitted, told = self.loop._commits._uncommitted, self.told()
        for task in self.loop._tasks.processing.values():
            if task not in told:
                self.is_known(task)
            if not self.threaded:
                self.is_served(task)
        counts = uncommitted._counts.values()
        assert (uncommitted.bytes, uncommitted.commit_bytes) == (sum(b for b, _ in counts), sum(b for _, b in counts))
        assert uncommitted._counts.keys() == uncommitted._tasks.keys()
        assert self.loop._inputs.buffered_bytes == sum(self.loop._inputs._throttle._held.values())
        self.fetches_what_it_may()
        self.holds_the_locks_of_its_tasks()

    def is_known(self, task: Task) -> None:
        """The schedule of commits, collection and inputs know the task as it is."""
        uncommitted, inputs = self.loop._commits._uncommitted, self.loop._inputs
        unseen = inputs._throttle._to_look_at
        if task.commit_needed():
            assert uncommitted._tasks.get(task.id) is task or task in uncommitted._told
        if task.commit_requested():
            assert task.id in uncommitted._asking or task in uncommitted._told
        counted = uncommitted._counts.get(task.id, (0, 0))[1]
        if not task.applying:
            assert counted == task.uncommitted_bytes() or task in uncommitted._told
        if task not in self.loop._unsent and not self.threaded:
            assert not task.output_bytes(), "outputs that no turn will send"
        held = [inputs._throttle._held.get(partition) for partition in task.partitions]
        if None not in held and task not in self.loop._changed:
            assert held == [task.input.bytes_of(p) for p in task.partitions] or not unseen.isdisjoint(task.partitions)

    def is_served(self, task: Task) -> None:
        """The stream thread's processing will flush the task, process its input, and punctuate it in time."""
        assert not task.unflushed or task.id in self.processing._to_flush
        if not task.initialised or task.id.subtopology in self.processing._paused:
            return
        assert task.id in self.processing._going
        assert not task.input.waiting() or task.id in self.processing._fed
        due_ms = task.next_punctuation_ms()
        assert due_ms is None or self.processing._alarms._alarms._set[task.id] <= due_ms

    def fetches_what_it_may(self) -> None:
        consumer, tasks = self.r.world.consumer, self.loop._inputs._tasks
        processing = self.loop._tasks.processing
        assert consumer.assigned == {TopicPartition(topic, id.partition) for id in processing for topic in TOPICS}
        most = 2 * BUFFERED
        full = [p for p in consumer.assigned - consumer.paused if tasks[p].input.waiting_of(p) >= most]
        self.over = Counter({partition: self.over[partition] + 1 for partition in full})
        assert all(turns < 3 for turns in self.over.values()), "a full partition is fetched on and on"

    def holds_the_locks_of_its_tasks(self) -> None:
        where = self.r.tasks.places()
        maybe = {id for id, phase in where.items() if phase in (Phase.WAITING, Phase.OPENING, Phase.LEAVING)}
        between = {entry.id for entry in self.r.tasks._registry if entry.stores is not None}
        assert where.keys() - maybe | between <= self.r.world.state.held <= where.keys()


def all_committed(r: Running) -> bool:
    """Whether every input is committed to its end."""
    inputs = [TopicPartition(topic, partition) for topic in TOPICS for partition in range(TASKS)]
    committed = {at: r.world.member.committed[at].offset for at in inputs if at in r.world.member.committed}
    return all(committed.get(at, 0) == r.world.logs[at].end for at in inputs)


def is_exact(r: Running, sent: dict[int, Counter[str]]) -> None:
    """Each store has the counts, each changelog ends as its store, and every input is committed to its end."""
    for partition, counts in sent.items():
        store = r.world.state.content(TaskId(0, partition))
        found = {key.decode(): serdes.LONG.deserialize("", value) for key, value in store.items()}
        assert {key: count for key, count in found.items() if key != TICK} == counts
        logged = r.world.logs[TopicPartition(CHANGELOG, partition)].entries
        assert {message.key(): message.value() for message in logged if message is not None} == store
    assert all_committed(r)


@pytest.mark.parametrize("stage", ["baseline", "m1", "m2"])
@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
@pytest.mark.parametrize("seed", range(4))
def test_a_turn_knows_what_a_look_at_all_tasks_would_find(stage: str, cached: bool, seed: int) -> None:
    r = running(stage, seed, cached=cached)
    everything, look = Everything(r, seed), Look(r, stage)
    r.rebalance()
    for _ in range(TURNS):
        with r.turn() if isinstance(r, RunningProcessing) else nullcontext():
            everything.once()
        r.step(ms=everything.rng.randrange(60))
        look.compare()
    everything.calm()
    r.rebalance(*range(TASKS))
    for _ in range(LAST_TURNS):  # a processing thread does one thing a turn
        if all_committed(r):
            break
        r.step(ms=100)
    r.step(150, ms=100)
    assert r.tasks.places() == {TaskId(0, partition): Phase.PROCESSING for partition in range(TASKS)}
    look.compare()
    is_exact(r, everything.sent)
    r.loop.shut_down(leave_group=True)
    r.loop.close()
    assert r.world.state.held == set()
