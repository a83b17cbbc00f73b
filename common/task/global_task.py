"""`GlobalTask` runs the processors of an instance's global stores, for all partitions of their topics.

    add ---> InputBuffer ---> one record (`Runner`) ---> RecordScope ---merge---> overlay --commit--> namespaces
                                    | failed                                     with the positions     ^
                                    +---- handler                                                       | any task reads

A global task has the parts of a task, but no outputs and no punctuations. The group doesn't assign a global task: each
instance has a global task of its own.

*Guarantees*: a commit writes the entries of whole records together with the positions after these records. A reader
never sees a part of a commit. If a record can't be read, or its processor fails, the handler decides: the record is
skipped, or the task stops before it.
*Assumes*: one thread owns the task. Each partition is read from its entry in `positions` on, in offset order. Of the
added records of several partitions, the one with the smallest timestamp comes first. No partition waits for another.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from milestones.common.errors import TopologyError
from milestones.common.records import GLOBAL, TOPIC, TopicPartition
from milestones.common.state.cells import Cells
from milestones.common.state.global_stores import GlobalStores, ShownStore
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches, TaskCaches
from milestones.common.state.stores.global_readers import ShownCells
from milestones.common.task.boundary import Boundary
from milestones.common.task.counters import TaskCounters
from milestones.common.task.input import TaskInput
from milestones.common.task.runner import Runner
from milestones.common.task.task_context import TaskContext, TaskSettings
from milestones.common.task.task_program import TaskProgram, compiled
from milestones.common.task.task_stores import TaskStores
from milestones.common.topology.compiled import Program

if TYPE_CHECKING:
    from milestones.common.state.engine import Batch
    from milestones.common.state.storage import GlobalStorage
    from milestones.common.topology.nodes import SubTopology

log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class GlobalContext(TaskContext):
    """The services for the processor of a global store. This processor can't schedule punctuations, and sends no
    records."""

    def schedule(self, *_: Any) -> NoReturn:
        raise TopologyError(
            "the processor of a global store can't schedule: it is called for the records of its topic alone"
        )

    def stream_time(self) -> NoReturn:
        raise TopologyError("the processor of a global store has no stream time: its partitions come in any order")

    def request_commit(self) -> None:
        """Do nothing, as each batch is committed."""


class GlobalTask:
    """*Owns*: the storage, the program, the input.

    The owner calls `open`, `clear` (if a store can't be continued) and `start`, then `add` and `process`, and `close`
    at the end.
    """

    def __init__(
        self,
        subtopology: SubTopology,
        partitions: Collection[TopicPartition],
        settings: TaskSettings,
        open_stores: Callable[[], GlobalStorage],
    ) -> None:
        self.subtopology, self.partitions = subtopology, tuple(sorted(partitions))
        self.topics: dict[str, str] = {spec.name: str(spec.source_topic) for spec in subtopology.stores}
        self.counters: TaskCounters = TaskCounters()
        self._settings, self._open_stores = settings, open_stores
        self._storage: GlobalStorage | None = None
        self._boundary = Boundary()
        self.input: TaskInput = TaskInput(self.partitions, self._boundary)
        caches = TaskCaches(RecordCaches())
        buffers = tuple(self.input.buffers.values())
        self._runner = Runner(GLOBAL, settings, buffers, self._boundary, self.counters, caches)
        cells = Cells(self._runner.scope.touched)
        self._stores = TaskStores(
            GLOBAL, subtopology, self._opened, self._runner.scope, ReadCaches(0), caches, cells
        )
        self._context = GlobalContext(GLOBAL, settings, self._runner, self._stores.typed, cells, self.counters.tally)
        self._runner.dropped, self._runner.forget = self._context.dropped, self._stores.forget
        self._program = TaskProgram(GLOBAL, self._runner.scope, self._compiled)
        self._committed: Mapping[TopicPartition, int] = {}
        self._cells, self._shown = cells, ShownCells({})
        if settings.profile is not None:
            settings.profile.follow(GLOBAL, self._runner)

    # -- the beginning

    def open(self) -> None:
        """Open the stores. Raises `StateError`."""
        self._stores.open()

    def _opened(self) -> GlobalStorage:
        self._storage = self._open_stores()
        return self._storage

    @property
    def storage(self) -> GlobalStorage:
        """The open storage."""
        assert self._storage is not None  # opened
        return self._storage

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions of the stores, by partition. Partitions without a position are left out."""
        return {
            TopicPartition(topic, partition): offset
            for store, topic in self.topics.items()
            for partition, offset in self.storage.positions(store).items()
        }

    def clear(self, store: str, reason: object) -> None:
        """Empty a store that can't be continued, so that it is read from the beginning. Call this method before
        `start`."""
        self._stores.clear(store, reason)

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Initialise the processors, and begin at these positions, one per partition. Raises the errors that `process`
        raises."""
        for partition, position in positions.items():
            self.input.buffers[partition].seek(position, -1)
        self._committed = dict(positions)
        self._stores.make_typed(self._runner.record, cached=False)
        program = self._program.make()
        self._stores.open_to_user_code()
        self._runner.record.leave(self._context.wall_ms())
        self._runner.run_alone(program.init, "Processor.init")
        self.commit()

    def _compiled(self) -> Program:
        topics = {partition.topic for partition in self.partitions}
        program = compiled(self.subtopology, self._context, self._settings, self.counters, sorted(topics))
        self.input.connect(program.sources)
        return program

    def show(self, stores: GlobalStores) -> None:
        """Make the complete stores readable for tasks."""
        self._shown = shown = ShownCells(self._cells.values())
        stores.show(ShownStore(spec, self.storage.namespace(spec.name), shown) for spec in self.subtopology.stores)

    # -- work

    def process(self, now_ms: int) -> int:
        """Process all added records, commit them, and return their number.

        Raises `ProcessingError` if a handler says FAIL. The records before the failed one are committed.
        """
        done, waiting = 0, self.input.waiting()
        try:
            while waiting and (some := self._runner.process(waiting, now_ms)):
                done += some
                waiting = self.input.waiting()
        finally:
            self.commit()
        return done

    def commit(self) -> None:
        """Write the changes of the finished records, and the positions after them. Raises `StateError`."""
        self._say_what_is_lost()
        positions = {partition: buffer.next_offset() for partition, buffer in self.input.buffers.items()}
        if not self._boundary.changed and positions == self._committed:
            return
        self._boundary.changed = False
        self._stores.freeze()
        self._stores.applied({}, lambda batches, _: self._write(batches, positions))
        self._shown.follow(self._cells.values())
        self._committed = positions

    def _write(self, batches: Mapping[str, Batch], positions: Mapping[TopicPartition, int]) -> None:
        by_topic: dict[str, dict[int, int]] = {topic: {} for topic in self.topics.values()}
        for (topic, partition), offset in positions.items():
            by_topic[topic][partition] = offset
        self.storage.write_at(batches, {store: by_topic[topic] for store, topic in self.topics.items()})

    def _say_what_is_lost(self) -> None:
        """Log the dead letters of handlers as lost. A global task has no producer that could write them."""
        letters = Counter(output[TOPIC] for output in self._boundary.take_outputs())
        for topic, count in letters.items():
            log.warning(
                "%d dead letters for %s aren't written, as records of global stores have no producer. The records are "
                "skipped", count, topic,
            )  # fmt: skip

    def call(self, function: Callable[[], T]) -> T:
        """Call `function`, and commit its writes to stores: for tools and tests."""
        result = self._runner.call(function, self._context.wall_ms())
        self.commit()
        return result

    def store(self, name: str) -> Any:
        """Return a store as its processor sees it."""
        return self._stores.typed(name)

    @property
    def reached(self) -> Mapping[TopicPartition, int]:
        """The offset up to which all records are in the stores, by partition."""
        return self._committed

    @property
    def dropped_records(self) -> int:
        """The number of skipped records."""
        return sum(self._context.dropped_records.values())

    def close(self) -> None:
        """Close the processors and the stores. Raises the processors' errors after everything is closed."""
        try:
            self._program.end()
        finally:
            self._context.close_global_stores()
            self.input.clear()
            self._stores.close()
