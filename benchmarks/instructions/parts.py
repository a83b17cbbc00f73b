"""The parts of a stage, driven one after the other in one thread.

*Guarantees*: what a part does is done by the stage's own classes.
*Assumes*: one thread; the clock stands still but between commits, so that no turn ends by time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks.instructions.counters import NOWHERE, Counter
from benchmarks.instructions.programs import Program
from benchmarks.job import EXACTLY_ONCE, Job
from milestones.common.config import StreamsConfig
from milestones.common.kafka.consumers import AssignedConsumer
from milestones.common.kafka.producer import OutputProducer
from milestones.common.memory import MemoryBudget
from milestones.common.metrics import Metrics
from milestones.common.records import Emitted, TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.record_caches import RecordCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing.clock import StepClock
from milestones.common.topology.configured import configured
from milestones.flags import parse_milestones
from milestones.m2_processing_threads.scheduler import Scheduler
from milestones.m2_processing_threads.worker import Worker
from milestones.m5_committed_collector.collector import CHUNK
from milestones.m5_committed_collector.intervals import TaskIntervals
from milestones.m6_state_manager.manager import RangeStateManager

LONG_MS: Final = 1 << 40
COMMIT_MS: Final = 1_000
"""Between two commits."""


class Parts:
    """The tasks of a program, and what `stage` does about them."""

    def __init__(
        self, stage: str, config: StreamsConfig, consumer: AssignedConsumer, producer: OutputProducer,
        counter: Counter, program: Program, output: str, partitions: int,
    ) -> None:  # fmt: skip
        self._flags = parse_milestones(stage)
        self._consumer, self._producer, self._mark = consumer, producer, counter.mark
        clock = self._clock = StepClock()
        directory = StateDirectory(config.state_dir, config.application_id, clock)
        engines = open_engines(config.rocksdb_engine)
        manager = RangeStateManager if "state_manager" in self._flags else LocalStateManager
        self._state = manager(directory, engines, stage)
        job = Job(
            config.bootstrap_servers, config.application_id, EXACTLY_ONCE, program.inputs[0], output,
            str(config.state_dir), work=program.work,
        )  # fmt: skip
        [sub] = configured(program.topology(job), config).subtopologies
        settings = TaskSettings(
            config.application_id, clock, lambda _: partitions, transactional_id="instructions",
            record_caches=RecordCaches(0), logs_at_commit="committed_collector" in self._flags,
        )  # fmt: skip
        memory = MemoryBudget(config)
        self._tasks: list[Task] = []
        for number in range(partitions):
            id, inputs = TaskId(sub.id, number), [TopicPartition(topic, number) for topic in program.inputs]
            task = Task(id, sub, inputs, settings, partial(self._opened, id, sub.stores, memory))
            task.open()
            task.start(dict.fromkeys(inputs, 0), {})
            self._tasks.append(task)
        self._task_of = {partition: task for task in self._tasks for partition in task.partitions}
        self._kept: Mapping[Task, TaskIntervals] = {task: TaskIntervals(task) for task in self._tasks}
        self._process = self._threaded(clock) if "processing_threads" in self._flags else self._inline
        self._offset = 0

    def _opened(self, id: TaskId, specs: Sequence[StoreSpec], memory: MemoryBudget) -> TaskStorage:
        return memory.waiting.of(self._state.open(id, specs), specs, self._clock)

    def close(self) -> None:
        """Close the stores."""
        for task in self._tasks:
            task.close()
        self._state.release()

    def interval(self, batches: int, batch: int, *, told: bool) -> None:
        """One commit interval of so many fetches; `told`: what the parts cost is told."""

        def mark(part: str) -> None:
            self._mark(part if told else NOWHERE)

        self._mark()
        self._clock.advance(COMMIT_MS)
        for _ in range(batches):
            fetched = self._consumer.fetch(batch, 0)
            for partition, messages in fetched.records.items():
                self._task_of[partition].input.add(partition, messages)
            mark("dispatch")
            self._process()
            mark("process")
            self._send()
            mark("send")
        commits = {task: task.freeze() for task in self._tasks}
        mark("freeze")
        for task, boundary in commits.items():
            kept = self._kept[task]
            if "committed_collector" in self._flags:
                kept.cut_at(boundary)
                self._hand_over_kept(task, kept.of_the_cut)
                kept.confirmed()
            else:
                self._hand_over(task, boundary.all_outputs())
        mark("changelog")
        self._offset += batches * batch
        for task, boundary in commits.items():
            task.applied(boundary, dict.fromkeys(task.subtopology.changelogs, self._offset))
        mark("apply")

    def _inline(self) -> None:
        for task in self._tasks:
            while task.process(500, 0) == 500:
                pass

    def _threaded(self, clock: StepClock) -> Callable[[], None]:
        """A worker's turns, until no task has input."""
        scheduler = Scheduler(clock, 1, LONG_MS, wait=lambda *_: None)
        worker = Worker("worker", scheduler, clock, Metrics())
        for task in self._tasks:
            scheduler.add(task)

        def process() -> None:
            scheduler.wake([task.id for task in self._tasks])
            while worker.run_once():
                pass
            scheduler.take_changed()

        return process

    def _send(self) -> None:
        for task in self._tasks:
            outputs = task.take_outputs()
            if "committed_collector" in self._flags:
                self._kept[task].add(outputs)
                self._hand_over_kept(task, self._kept[task].of_the_next)
            else:
                self._hand_over(task, outputs)

    def _hand_over_kept(self, task: Task, next_of: Callable[[int], Sequence[Emitted]]) -> None:
        while chunk := next_of(CHUNK):
            self._hand_over(task, chunk)
            self._kept[task].handed_over(len(chunk))

    def _hand_over(self, task: Task, outputs: Sequence[Emitted]) -> None:
        if self._producer.send(task.id, outputs, task.changelog_topics):
            raise SystemExit("the client has no room for outputs")
