"""An active task: a program, its input, its stores, and the boundaries between its records.

    add ---> InputBuffer ---> one record (`Runner`) ---> RecordScope ---merge---> Boundary --freeze--> PendingCommit
                                    | failed                |                        ^                     |
                                    +-------- handler ------+                        +--- thaw ------------+--- applied
                                                                                                               (engines)

*Guarantees*: only boundaries are sent or committed, which means the work of whole records. After an error the task is
at its last boundary, and the failed record is the next one. A `PendingCommit` of an older epoch is refused. Only
committed data reaches an engine. A roll-back ends the program: its processors, their schedules and their store handles
become invalid, and a new program is made. Under `at_least_once` changelogs keep rolled-back records. Then the committed
values are logged once more after them.
*Assumes*: one owner at a time. From M2 on the stream thread has input, outputs and commits, and a processing thread the
methods under *work*; a method that any thread may call says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import Any, TypeVar

from milestones.common.errors import OwnershipError, StateError
from milestones.common.records import Emitted, OffsetAndMetadata, TaskId, TopicPartition
from milestones.common.state.cells import Cells
from milestones.common.state.record_caches import TaskCaches
from milestones.common.state.storage import OpenStores, TaskStorage
from milestones.common.task.boundary import Boundary, PendingCommit, Position
from milestones.common.task.changelog_task import ChangelogTask
from milestones.common.task.commits import TaskCommits
from milestones.common.task.input import TaskInput
from milestones.common.task.lifecycle import TaskState
from milestones.common.task.metadata import OffsetMetadata, committed_numbers, written_mark
from milestones.common.task.punctuation import NEVER, Due
from milestones.common.task.runner import Runner
from milestones.common.task.task_context import TaskContext, TaskSettings
from milestones.common.task.task_program import TaskProgram, compiled
from milestones.common.task.task_stores import TaskStores
from milestones.common.task.unlogged import check_unlogged
from milestones.common.topology.compiled import Program
from milestones.common.topology.nodes import SubTopology

T = TypeVar("T")

__all__ = ["OpenStores", "PendingCommit", "Task", "TaskSettings", "TaskState", "TaskStorage"]


class Task(ChangelogTask):
    """An active task, made once per assignment: `open`, (`restore`), `start`, then records; `close` at the end."""

    following = TaskState.RESTORING

    def __init__(
        self,
        id: TaskId,
        subtopology: SubTopology,
        partitions: Collection[TopicPartition],
        settings: TaskSettings,
        open_stores: OpenStores,
    ) -> None:
        super().__init__(id, subtopology)
        self.partitions: tuple[TopicPartition, ...] = tuple(sorted(partitions))
        self.changelog_topics: frozenset[str] = frozenset(
            subtopology.changelogs[spec.name]
            for spec in subtopology.stores
            if spec.name in subtopology.changelogs and spec.source_topic is None
        )
        self._settings = settings
        self._boundary = Boundary()
        self.input: TaskInput = TaskInput(self.partitions, self._boundary)
        buffers = self.input.buffers
        caches = TaskCaches(settings.record_caches)
        self._runner = Runner(id, settings, tuple(buffers.values()), self._boundary, self.counters, caches)
        self._cells = Cells(self._runner.scope.touched)
        self._stores = TaskStores(
            id, subtopology, open_stores, self._runner.scope, settings.read_caches, caches, self._cells,
            logs_at_commit=settings.logs_at_commit,
        )  # fmt: skip
        self._task_context = TaskContext(
            id, settings, self._runner, self._stores.typed, self._cells, self.counters.tally
        )
        self._runner.dropped, self._runner.forget = self._task_context.dropped, self._stores.forget
        self._commits = TaskCommits(
            id, subtopology, buffers, self._boundary, self._runner, self._stores, self._cells,
            settings.transactional_id, settings.clock,
        )  # fmt: skip
        self._program = TaskProgram(id, self._runner.scope, self._compiled)
        self._complete = self._initialised = False
        if settings.profile is not None:
            settings.profile.follow(id, self._runner, self._commits)

    # -- state

    @property
    def epoch(self) -> int:
        """A number that rises with each roll-back, by one or two."""
        return self._boundary.epoch

    @property
    def stream_time(self) -> int:
        """The highest timestamp of all records so far, including the current one. -1 before the first record."""
        return self._runner.stream_time

    @property
    def dropped_records(self) -> int:
        """The number of records skipped since the task was made (metric dropped-records-total)."""
        return sum(self._task_context.dropped_records.values())

    # -- opening and restoring

    def open(self) -> None:
        """Open the stores. `StateLockedError` (ask again), `StateError`."""
        self.lifecycle.expect(TaskState.CREATED, TaskState.RESTORING)
        self._stores.open()
        try:
            self._make_stores()
        except BaseException:
            self._stores.close()
            raise
        self.lifecycle.move(TaskState.RESTORING)

    @property
    def needs_restoration(self) -> bool:
        """True if the stores may lack committed writes, and the task has changelogs to restore them from."""
        return not self._complete and bool(self.subtopology.changelogs)

    def compare(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Compare the offsets that Kafka has committed with those that this task was rolled back to. If they differ,
        Kafka has made a commit whose answer never came, and the writes of that commit must be restored. Confirmed
        writes that couldn't be applied must be restored, too."""
        if self._commits.incomplete or self._commits.made_unanswered(committed):
            self._complete = False
            self._stores.trust_changelogs()

    def know(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Take the committed offsets, if there are any. Their metadata holds the times by which rows expire. Call it
        after `compare`, before the stores are restored and the task is started."""
        self._stores.know(committed_numbers(committed))

    @property
    def topic_ids(self) -> Mapping[str, int]:
        """The ids of the topics that the task's positions belong to, as `number_of`, by topic whose id is known."""
        return self._commits.topic_ids

    def belongs_to(self, ids: Mapping[str, int], written: Collection[str] = ()) -> None:
        """Have each commit say that its offsets belong to the topics of these ids, and that the task writes to those of
        `written`, internal ones."""
        self._commits.topic_ids = {at.topic: ids[at.topic] for at in self.partitions if at.topic in ids}
        self._commits.written = frozenset(written_mark(topic, ids[topic]) for topic in written if topic in ids)

    def restoration_ends(
        self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """By changelog partition: the offset where restoration ends. `ends`: the ends of the partitions in Kafka. A
        source topic that serves as a changelog ends at its committed input offset (`committed`), as later records are
        input."""
        limits = dict(ends)
        for partition in self.source_changelogs:
            if committed is None:
                raise OwnershipError(
                    f"task {self.id} restores from its source topic {partition.topic} and must know the committed "
                    "offsets: this is a bug"
                )
            limits[partition] = min(ends[partition], committed.get(partition, 0))
        return limits

    def start(
        self,
        positions: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str],
        *,
        initialise: bool = True,
    ) -> None:
        """Begin at the committed offsets `positions` (one per partition), with the stream times in `metadata`.

        Called after restoration, and again after a roll-back. `initialise`: initialise the processors, too.
        """
        self.lifecycle.expect(TaskState.RESTORING, TaskState.READY)
        missing = set(self.partitions) - positions.keys()
        if missing:
            names = sorted(map(str, missing))
            raise OwnershipError(f"task {self.id} is started without positions of {names}: this is a bug")
        known = {partition: OffsetMetadata.decode(metadata.get(partition, "")) for partition in self.partitions}
        self._commits.know(known)
        check_unlogged(self.id, self._stores, self._commits.known_number, refuses=self._settings.refuses_behind)
        self._seek({p: Position(positions[p], known[p].stream_time) for p in self.partitions})
        self._commits.began()
        self._complete = True
        if initialise:
            self.initialise()

    def commit_start(self) -> None:
        """Ask for a commit of the first positions, although no record was processed. `start_pends` is True until
        then."""
        self._commits.start_pends = True
        self.request_commit()

    @property
    def start_pends(self) -> bool:
        """True if the positions of `commit_start` still have to be committed."""
        return self._commits.start_pends

    @property
    def initialised(self) -> bool:
        """True if the processors are initialised."""
        return self._initialised

    @property
    def has_program(self) -> bool:
        """True if the task has processors. Rolled-back ones count, too, until they are closed."""
        return self._program.made

    def initialise(self) -> None:
        """Make and initialise the processors, unless they are initialised; rolled-back ones are closed first. Errors as
        in `process`; `TopologyError`."""
        if self._initialised:
            return
        self._initialise(self._task_context.wall_ms())
        self.lifecycle.move(TaskState.READY)
        self._initialised = True

    def _initialise(self, wall_ms: int) -> None:
        self._program.end_former()
        self._runner.call(lambda: self._stores.log_again(wall_ms), wall_ms)
        self._make_stores()
        program = self._program.make()
        self._commits.make_room()
        self._stores.open_to_user_code()
        self._runner.record.leave(wall_ms)
        if self._runner.run_alone(program.init, "Processor.init"):
            self._runner.take_over(self._commits.committed.punctuations, wall_ms)
            self._commits.scheduled()

    def _make_stores(self) -> None:
        """Make the stores that user code sees. Handles and iterators of a former program are closed for good."""
        self._task_context.close_global_stores()
        self._stores.make_typed(self._runner.record, cached=self._settings.record_caches.max_bytes > 0)
        self._runner.cached = self._stores.cached()

    def _compiled(self) -> Program:
        topics = [partition.topic for partition in self.partitions]
        program = compiled(self.subtopology, self._task_context, self._settings, self.counters, topics)
        self.input.connect(program.sources)
        return program

    # -- work

    def ready(self, now_ms: int) -> bool:
        """True if a record may be processed now. `now_ms`: monotonic time, as in `reached_end`."""
        return self.input.ready(self._settings.max_task_idle_ms, now_ms)

    def process(self, limit: int, now_ms: int) -> int:
        """Process at most `limit` records, and return their number. `now_ms`: monotonic time, as in `ready`.

        Raises `ProcessingError` if a handler chose to fail: the task stands before that record then.
        """
        counters, began = self.counters, perf_counter_ns()
        before = counters.processed, counters.punctuate_ns
        with self._running():
            try:
                return self._runner.process(limit, now_ms)
            finally:
                if counters.processed > before[0]:
                    counters.process_ns += perf_counter_ns() - began - (counters.punctuate_ns - before[1])

    @contextmanager
    def _running(self, state: TaskState = TaskState.RUNNING) -> Iterator[None]:
        """Keep the task in `state` inside the block, while the calling thread works on the task."""
        self.lifecycle.move(state)
        try:
            yield
        finally:
            self.lifecycle.move(TaskState.READY)

    def punctuate(self, now_ms: int) -> bool:
        """Call the wall-clock punctuations that are due; True when one was called. Errors: as in `process`."""
        if not self.punctuation_due(now_ms):
            return False
        with self._running():
            return self._runner.punctuate(now_ms)

    def punctuation_due(self, now_ms: int) -> bool:
        """True if `punctuate` has something to do. Any thread may ask."""
        return self._runner.wall_punctuations.is_due(now_ms)

    def next_punctuation_ms(self) -> int | None:
        """When the next wall-clock punctuation is due. None if there is none."""
        due = self._runner.wall_punctuations.next_ms
        return None if due == NEVER else due

    def punctuation_schedule(self) -> tuple[Due, Due]:
        """The times at which punctuations are due (`PunctuationQueue.due`), by stream time and by the wall clock."""
        return self._runner.punctuation_schedule()

    def resume_punctuations(self, schedule: tuple[Due, Due]) -> None:
        """Keep the `schedule` of the task's predecessor in another process; called after `start`."""
        self._runner.resume_punctuations(schedule)

    def store(self, name: str) -> Any:
        """A store as user code sees it."""
        return self._stores.typed(name)

    def call(self, function: Callable[[], T]) -> T:
        """Call `function`, and make its writes to stores a boundary: for tools and tests."""
        with self._running():
            return self._runner.call(function, self._task_context.wall_ms())

    def flush(self) -> None:
        """Have the caches log and emit their waiting updates. Errors: as in `process`."""
        if self.unflushed:
            with self._running(TaskState.LOCKED):
                self._runner.flush()

    def apply(self, *, last: bool = False) -> None:
        """Write the confirmed commit, if any, to the engines. `StateBusyError`: call it again after the error's
        `pause_ms`, as nothing is lost; where this is the `last` call it is another `StateError`. After a `StateError`
        the commit is restored at the next open. But in the `last` call those that wait are written, too, if that is
        due."""
        self._commits.apply(last=last)
        if not last:  # what waits is complete without it, whatever the task's end is
            self._commits.write_waiting()

    # -- what any thread may ask for

    def interrupt(self) -> None:
        """Have `process` return at the next record's boundary."""
        self._runner.limit = 0

    def invalidate(self) -> None:
        """Raise the epoch: the record in work is void, and `process` returns at its end. Unsent outputs of earlier
        records are dropped. `roll_back` or `close` is to follow."""
        with self._boundary.lock:
            self._boundary.epoch += 1
            self._boundary.outputs = []

    # -- commit

    def commit_requested(self) -> bool:
        """True if user code asked for a commit, a finished record needs one, and the task can be committed now."""
        if not (self._task_context.commit_requested and self._initialised) or self.applying:
            return False
        # A quarantine keeps waiting updates in the caches.
        held = self.state is TaskState.QUARANTINED and self.unflushed
        return not held and self.commit_needed()

    def position(self, but: Collection[str] = ()) -> int:
        """As of the last confirmed commit, also while another thread writes it to the engines; without the stores in
        `but`."""
        to_apply = self._commits.to_apply  # before what is written: else the commit could be missed in both
        offsets = {store: offset for store, offset in self.changelog_offsets().items() if store not in but}
        return sum(max(offset or 0, to_apply.get(store, 0)) for store, offset in offsets.items())

    def reached(self) -> dict[TopicPartition, int]:
        """The offsets after the last record of finished boundaries, by input partition."""
        return {partition: buffer.next_offset() for partition, buffer in self.input.buffers.items()}

    def request_commit(self) -> None:
        """Ask for a commit, as user code may. Any thread may call this."""
        self._task_context.commit_soon()

    def commit_needed(self) -> bool:
        """True if anything has changed since the last frozen boundary, if only by trailing control records."""
        return self._commits.needed()

    @property
    def unflushed(self) -> bool:
        """True if updates wait in caches, so that the last boundary can't be committed."""
        return self._runner.unflushed

    @property
    def cached(self) -> bool:
        """True if any store has a cache."""
        return bool(self._runner.cached)

    @property
    def applying(self) -> bool:
        """True if a confirmed commit isn't in the engines yet."""
        return self._commits.applying

    @property
    def write_due_ms(self) -> int | None:
        """The monotonic time at which commits that wait for the disk are to be written (`apply`); None: none waits."""
        return self._stores.write_due_ms

    @property
    def committable(self) -> bool:
        """True if the last boundary can be frozen now: nothing is to be flushed, applied or restored."""
        return self._initialised and not (self._commits.applying or self._commits.incomplete or self.unflushed)

    def uncommitted_bytes(self) -> int:
        """Memory of state that isn't in the engines yet, about; reaching the limit asks for an early commit."""
        return self._stores.uncommitted_bytes()

    def kept_bytes(self) -> int:
        """Memory of the order in which stores keep updates back, about."""
        return self._stores.kept_bytes()

    def cache_bytes(self) -> int:
        """Memory of the updates that wait in the stores' caches, about."""
        return sum(store.buffer.bytes for store in self._runner.cached if store.buffer is not None)

    def held(self) -> Mapping[str, tuple[int, int]]:
        """Of each store that keeps updates back, how many there are, and their bytes. Any thread may ask."""
        return self._stores.held()

    def take_outputs(self) -> list[Emitted]:
        """Outputs of finished boundaries, in order; the caller sends them."""
        return self._boundary.take_outputs()

    def put_back(self, outputs: Sequence[Emitted]) -> None:
        """Take back the last ones of the taken outputs, for which the client had no room. They will be sent before all
        others."""
        self._boundary.put_back(outputs)

    def output_bytes(self) -> int:
        """Memory of the outputs that wait, or that are taken and retained, about."""
        return self._boundary.output_bytes()

    def set_retained_output_bytes(self, count: int) -> None:
        """Note the bytes of taken outputs that are retained until they are confirmed."""
        self._boundary.retained_bytes = count

    @property
    def has_retained_outputs(self) -> bool:
        """True if taken outputs are retained until they are confirmed."""
        return self._boundary.retained_bytes > 0

    def freeze(self) -> PendingCommit:
        """Flush the caches, then return the last boundary as a commit. Errors of the flush are as in `process`."""
        self.flush()
        commit = self.freeze_if_flushed()
        if commit is None:
            raise OwnershipError(f"task {self.id}: another thread works on it. This is a bug")
        return commit

    def freeze_if_flushed(self) -> PendingCommit | None:
        """Return the last boundary as a commit. None if an update waits in a cache, as another thread may be working on
        the task."""
        self.lifecycle.expect(TaskState.READY, TaskState.RUNNING, TaskState.LOCKED, TaskState.QUARANTINED)
        return self._commits.freeze(self._task_context)

    def confirmed(self, commit: PendingCommit, changelog_offsets: Mapping[str, int]) -> None:
        """Note that Kafka has confirmed `commit`, which `apply` is to write. `changelog_offsets`: by store, the offset
        after its last changelog record of this commit; a store without writes needs none."""
        self._commits.confirmed(commit, changelog_offsets)

    def applied(self, commit: PendingCommit, changelog_offsets: Mapping[str, int]) -> None:
        """Note that Kafka has confirmed `commit`, and write it to the engines. Errors: as in `apply`."""
        self.confirmed(commit, changelog_offsets)
        self.apply()

    def gone(self) -> dict[TopicPartition, int]:
        """The time (ms) up to which rows are gone by the last confirmed commit, by partition of the changelogs that are
        trimmed."""
        return self._stores.gone(self._commits.committed.memory)

    def pends(self, commit: PendingCommit) -> bool:
        """True if `commit` was neither confirmed nor thawed, and the task wasn't rolled back since it was frozen."""
        return self._commits.pends(commit)

    def thaw(self, commit: PendingCommit) -> None:
        """Add a failed commit to the next one, under `at_least_once`. Its outputs stay sent."""
        self._commits.thaw(commit)

    def roll_back(self) -> int:
        """Raise the epoch, return to the last commit, drop all later work and all buffered input. Returns the number of
        input offsets processed since that commit, whose records come again.

        `start`, with the offsets that Kafka has, and `initialise` are to follow: the program is over.
        """
        self.apply(last=True)
        self.counters.rolled_back += 1
        self._initialised = False
        if self.state is TaskState.READY:
            self.lifecycle.move(TaskState.RESTORING)
        boundary = self._boundary
        with boundary.lock:
            boundary.epoch += 1
            boundary.outputs, boundary.retained_bytes = [], 0
            boundary.changed = self._task_context.commit_requested = False
            self._commits.pending = None
            self._runner.scope.drop()
            self._stores.abort(logged=not self._settings.transactional)
            self._cells.back(self._commits.committed.memory)
            if not self._complete:
                return 0
            committed = self._commits.committed
            done = self.input.processed_since(committed.positions)
            self._seek(committed.positions)
            self._runner.unschedule()
            return done

    def end(self) -> None:
        """Apply the confirmed commit, and close the processors, also when `apply` raises. Only `recycle` or `close` may
        follow. Raises the errors of both."""
        self.lifecycle.move(TaskState.CLOSING)
        try:
            self.apply(last=True)
        finally:
            self.end_program()

    def recycle(self) -> TaskStorage:
        """`end`, unless that was called, write the commits that wait, and give the open stores away; what isn't applied
        is dropped. After an error, also of `end`, the stores are closed."""
        try:
            if self.state is not TaskState.CLOSING:
                self.end()
            with suppress(StateError):  # it still waits, and what a standby restores comes behind it
                self._stores.write_waiting()
            return self._stores.release()
        except BaseException:
            self._stores.close()
            raise
        finally:
            self.lifecycle.move(TaskState.CLOSED)

    def close(self) -> None:
        """Close everything; unapplied writes are dropped. Harmless when repeated. Errors: as in `end`, once all is
        closed."""
        if self.state is TaskState.CLOSED:
            return
        try:
            self.end()
        finally:
            try:
                self._stores.close()
            finally:
                self.lifecycle.move(TaskState.CLOSED)

    def end_program(self) -> None:
        """Close the processors, unless they are closed. Raises their errors; only the task's end may follow."""
        try:
            self._program.end()
        finally:
            self._task_context.close_global_stores()
            self.input.clear()

    # -- below

    def _seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        self.input.seek(positions)
        self._runner.settle()
