"""`FedDriver`: our test driver, with several partitions, restarts, roll-backs and long commits, fed record by record.

    pipe ---> log of a partition ---> `Order` ---> a task: one record, (again), commit ---> logs ---> `Order` ---> ...

*Guarantees*: a task gets a record when its turn has come in the `Order`, and none before, so that the same order gives
the same records. After a restart a task has what its changelogs have, or what was kept on its disk, and the committed
offsets with their metadata; nothing else.
*Assumes*: sources have topics by name, all with `partitions` partitions; what is piped goes to topics that the topology
doesn't write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from milestones.common.partitioner import partition_of
from milestones.common.records import Headers, Output, TaskId, TopicPartition, output_of
from milestones.common.state.memory_storage import MemoryTaskStorage
from milestones.common.task.global_task import GlobalTask
from milestones.common.task.task import Task, TaskSettings
from milestones.common.testing.driver import TopologyTestDriver
from milestones.common.topology.nodes import SubTopology


class Order(Protocol):
    """Which of the records that wait comes next."""

    def add(self, at: TopicPartition, timestamp: int) -> None:
        """A record was appended to a partition."""
        ...

    def take(self) -> TopicPartition | None:
        """The partition whose first record comes next; None when none waits."""
        ...


class Fifo:
    """In the order in which they were written."""

    def __init__(self) -> None:
        self._waiting: deque[TopicPartition] = deque()

    def add(self, at: TopicPartition, timestamp: int) -> None:
        self._waiting.append(at)

    def take(self) -> TopicPartition | None:
        return self._waiting.popleft() if self._waiting else None


class AsJava:
    """As the one task that Kafka's TopologyTestDriver makes of a whole topology: the queue whose head has the smallest
    time comes first; of equal ones that which `java.util.PriorityQueue` has at its top."""

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, deque[int]] = {}
        self._heap: list[TopicPartition] = []

    def add(self, at: TopicPartition, timestamp: int) -> None:
        queue = self._queues.setdefault(at, deque())
        queue.append(timestamp)
        if len(queue) == 1:
            self._offer(at)

    def take(self) -> TopicPartition | None:
        if not self._heap:
            return None
        first, last = self._heap[0], self._heap.pop()
        if self._heap:
            self._sift_down(last)
        queue = self._queues[first]
        queue.popleft()
        if queue:
            self._offer(first)
        return first

    def _time(self, at: TopicPartition) -> int:
        return self._queues[at][0]

    def _offer(self, at: TopicPartition) -> None:
        heap, place = self._heap, len(self._heap)
        heap.append(at)
        while place > 0 and self._time(at) < self._time(heap[parent := (place - 1) >> 1]):
            heap[place], place = heap[parent], parent
        heap[place] = at

    def _sift_down(self, at: TopicPartition) -> None:
        """Put `at` where the top was."""
        heap, place, size = self._heap, 0, len(self._heap)
        while (child := 2 * place + 1) < size:
            if child + 1 < size and self._time(heap[child]) > self._time(heap[child + 1]):
                child += 1
            if self._time(at) <= self._time(heap[child]):
                break
            heap[place], place = heap[child], child
        heap[place] = at


class _Kept(MemoryTaskStorage):
    """Stores that outlive their task, as those on a disk do."""

    def close(self) -> None:
        """Leave everything as it is."""


class FedDriver(TopologyTestDriver):
    """`before`: called with each task that is to get a record, such as `restart`. `twice`: whether a task processes the
    record, is rolled back, and processes it once more. While it `holds`, nothing is committed."""

    def __init__(
        self,
        *arguments: Any,
        order: Callable[[], Order] = Fifo,
        partitions: int = 1,
        before: Callable[[FedDriver, Task], object] | None = None,
        twice: Callable[[], bool] = bool,
        **settings: Any,
    ) -> None:
        self.holds = False
        self.written: dict[tuple[str, int], list[Output]] = {}
        """What each task has written, by topic and the task's partition."""
        self._order, self._before, self._twice = order(), before, twice
        self._partitions, self._piped = partitions, 0
        self._logs: dict[TopicPartition, list[Output]] = {}
        self._next: dict[TopicPartition, int] = {}
        self._owners: dict[TopicPartition, int] = {}
        self._storages: dict[TaskId, _Kept] = {}
        self._committed: dict[TaskId, tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, str]]] = {}
        super().__init__(*arguments, **settings)

    def pipe(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers | None = None
    ) -> None:
        self._reader(topic)
        self._piped += 1
        # As a producer spreads them; records without a key in turn.
        partition = self._piped % self._partitions if key is None else partition_of(key, self._partitions)
        self._append_to(Output(topic, partition, key, value, timestamp, headers, ""))
        self._process()

    def commit(self) -> None:
        """Commit every task, call `before` for each, and process what follows."""
        self.holds = False
        for task in list(self._tasks):
            self._commit(task)
            if self._before is not None:
                self._before(self, task)
        self._process()

    def restart(self, task: Task, *, kept: bool) -> None:
        """End a task after a commit, and make it anew: where its stores on disk are `kept`, or elsewhere. Those without
        a changelog are always kept."""
        commit, schedule = task.freeze(), task.punctuation_schedule()
        assert not commit.all_outputs(), "a task is restarted between two records"
        task.applied(commit, {})
        task.close()
        specs = task.subtopology.stores
        staying = [spec.name for spec in specs if not spec.logged or (kept and spec.persistent)]
        successor = self._made(task.subtopology, task.id.partition, task.partitions, staying)
        successor.open()
        for store, topic in task.subtopology.changelogs.items():
            if store not in staying:
                at = TopicPartition(topic, task.id.partition)
                records = self._messages(at)[: commit.offsets.get(at)]  # of a source that serves as changelog
                successor.restore(store, records, len(records))
        successor.start(commit.offsets, commit.metadata)
        successor.resume_punctuations(schedule)
        self._tasks[self._tasks.index(task)] = successor

    # -- below

    def _start(self, sub: SubTopology, known: Iterable[str], opener: Any) -> None:
        for number in range(self._partitions):
            partitions = [TopicPartition(topic, number) for topic in sub.source_topics]
            task = self._made(sub, number, partitions, ())
            self._owners.update(dict.fromkeys(partitions, len(self._tasks)))
            self._tasks.append(task)
            task.open()
            task.start(dict.fromkeys(partitions, 0), {})
            self._readers.update(dict.fromkeys(sub.source_topics, task))

    def _made(
        self, sub: SubTopology, number: int, partitions: Collection[TopicPartition], staying: Collection[str]
    ) -> Task:
        id = TaskId(sub.id, number)

        def opened() -> _Kept:
            storage, former = _Kept(id, sub.stores), self._storages.get(id)
            if former is not None:
                storage.stores.update({name: former.stores[name] for name in staying})
            self._storages[id] = storage
            return storage

        return Task(id, sub, partitions, self._settings(), opened)

    def _settings(self) -> TaskSettings:
        return replace(super()._settings(), partitions_of=lambda _: self._partitions, transactional_id="fed")

    def _append_to(self, output: Output) -> None:
        partition = output.partition
        if partition < 0:
            partition = 0 if output.key is None else partition_of(output.key, self._partitions)
        at = TopicPartition(output.topic, partition)
        log = self._logs.setdefault(at, [])
        log.append(output)
        reader = self._readers.get(output.topic)
        if isinstance(reader, GlobalTask):
            everywhere = TopicPartition(output.topic, 0)
            reader.input.add(everywhere, [_message(everywhere, self._taken(everywhere), output)])
        elif reader is not None:
            self._order.add(at, output.timestamp)

    def _taken(self, at: TopicPartition) -> int:
        offset = self._next.get(at, 0)
        self._next[at] = offset + 1
        return offset

    def _messages(self, at: TopicPartition) -> list[Message]:
        return [_message(at, offset, output) for offset, output in enumerate(self._logs.get(at, ()))]

    def _reach_end(self, task: Task | GlobalTask) -> None:
        for partition in task.partitions:
            task.input.reached_end(partition, self._next.get(partition, 0), self.clock.monotonic_ms())

    def _process(self) -> None:
        self._follow()
        while (at := self._order.take()) is not None:
            if self._before is not None and not self.holds:
                self._before(self, self._tasks[self._owners[at]])
            task = self._tasks[self._owners[at]]
            self._feed(task, at)
            if self._twice():
                self._again(task)
            if not self.holds:
                self._commit(task)
            self._follow()

    def _feed(self, task: Task, at: TopicPartition) -> None:
        offset = self._taken(at)
        task.input.add(at, [_message(at, offset, self._logs[at][offset])])
        self._work_off(task)

    def _work_off(self, task: Task) -> None:
        self._reach_end(task)
        while task.process(1, self.clock.monotonic_ms()):
            self._reach_end(task)

    def _again(self, task: Task) -> None:
        """Roll the task back, and have it process what it had processed since its last commit."""
        task.roll_back()
        offsets, metadata = self._committed[task.id]
        task.start(offsets, metadata)
        for at in task.partitions:
            first = offsets[at]
            records = self._messages(at)[first : self._next.get(at, 0)]
            task.input.add(at, records)
        self._work_off(task)

    def _commit(self, task: Task) -> None:
        commit = task.freeze()
        for output in map(output_of, commit.all_outputs()):
            self.written.setdefault((output.topic, task.id.partition), []).append(output)
            self._produced.setdefault(output.topic, deque()).append(output)
            self._append_to(output)
        changelogs = {
            store: TopicPartition(topic, task.id.partition) for store, topic in task.subtopology.changelogs.items()
        }
        ends = {store: commit.offsets.get(at, len(self._logs.get(at, ()))) for store, at in changelogs.items()}
        task.applied(commit, ends)
        self._committed[task.id] = commit.offsets, commit.metadata


def _message(at: TopicPartition, offset: int, output: Output) -> Message:
    return Message(
        topic=at.topic, partition=at.partition, offset=offset, key=output.key, value=output.value,
        headers=[*output.headers] if output.headers else None, timestamp=(TIMESTAMP_CREATE_TIME, output.timestamp),
    )  # fmt: skip
