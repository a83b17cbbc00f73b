"""An active task: a program, its input, its stores, and the boundaries between its records.

    add ---> InputBuffer ---> one record (`Runner`) ---> RecordScope ---merge---> Boundary --freeze--> PendingCommit
                                    | failed                |                        ^                     |
                                    +-------- handler ------+                        +--- thaw ------------+--- applied
                                                                                                               (engines)

*Guarantees*: only the work of whole records (a boundary) is sent or committed. After an error the task is at its last
boundary, and the failed record is the next one. A `PendingCommit` of an older epoch is refused. Only committed data
reaches an engine. A roll-back ends the program: its processors, their schedules and their store handles become invalid,
and a new program is made. Under `at_least_once`, changelogs keep the records of rolled-back work. So the task logs the
committed values once more, after those records.
*Assumes*: one owner at a time. From M2 on, the stream thread adds input, takes outputs and commits. A processing thread
calls the methods under *work*. The docstring of a method that any thread may call says so.
*Why this way*: a commit never waits for the record in work. The boundary holds the finished records only, so that the
stream thread can freeze it at any moment, under a short lock. Engines are written after the confirmation, so that a
crash or a roll-back never empties a store ([0005](../../docs/decisions/0005-write-after-confirmation.md)).
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
    """An active task, made once per assignment.

    The owner calls `open`, `restore` (if stores must be restored) and `start`, then processes records, and calls
    `close` at the end.
    """

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
            logs_at_commit=settings.logs_at_commit, transactional=settings.transactional,
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
        """A number that rises by one or two with each roll-back."""
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
        """Open the stores. Raises `StateLockedError` (repeat the call later) or another `StateError`."""
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
        """Take the committed offsets, if there are any. Their metadata holds the times by which rows expire.

        Call this method after `compare`, and before the stores are restored and the task is started.
        """
        self._stores.know(committed_numbers(committed))

    @property
    def topic_ids(self) -> Mapping[str, int]:
        """The ids (`number_of`) of the topics to which the task's positions belong, by topic. Topics with an unknown id
        are left out."""
        return self._commits.topic_ids

    def belongs_to(self, ids: Mapping[str, int], written: Collection[str] = ()) -> None:
        """Set the topics that the metadata of each commit names: the input topics with their ids, and the internal
        topics that the task writes to (those of `written`). `ids`: the known ids of topics, by name."""
        self._commits.topic_ids = {at.topic: ids[at.topic] for at in self.partitions if at.topic in ids}
        self._commits.written = frozenset(written_mark(topic, ids[topic]) for topic in written if topic in ids)

    def restoration_ends(
        self, ends: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset where restoration ends, by changelog partition. `ends`: the ends of the partitions in
        Kafka.

        A source topic that serves as a changelog is restored up to its committed input offset (`committed`). The
        records after this offset are input.
        """
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

        Called after restoration, and after each roll-back. `initialise`: initialise the processors, too.
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
        """Ask for a commit of the first positions, even if no record has been processed. `start_pends` is True until
        this commit is confirmed."""
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
        """True if the task has processors. Processors that were rolled back count until they are closed."""
        return self._program.made

    def initialise(self) -> None:
        """Make and initialise the processors, unless they are initialised. Processors that were rolled back are closed
        first.

        Raises the errors that `process` raises, and `TopologyError`.
        """
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
        """Make the stores that user code sees. The store handles and iterators of an earlier program are closed for
        good."""
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
        """True if a record may be processed now. `now_ms` is monotonic time, like that of `reached_end`."""
        return self.input.ready(self._settings.max_task_idle_ms, now_ms)

    def process(self, limit: int, now_ms: int) -> int:
        """Process at most `limit` records, and return their number. `now_ms` is monotonic time, like that of `ready`.

        Raises `ProcessingError` if a handler chose to fail. The failed record is then the task's next record.
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
        """Call the wall-clock punctuations that are due. Returns True if one was called. Raises the errors that
        `process` raises."""
        if not self.punctuation_due(now_ms):
            return False
        with self._running():
            return self._runner.punctuate(now_ms)

    def punctuation_due(self, now_ms: int) -> bool:
        """True if `punctuate` has something to do. Any thread may ask."""
        return self._runner.wall_punctuations.is_due(now_ms)

    def next_punctuation_ms(self) -> int | None:
        """Return the time at which the next wall-clock punctuation is due. None if there is none."""
        due = self._runner.wall_punctuations.next_ms
        return None if due == NEVER else due

    def punctuation_schedule(self) -> tuple[Due, Due]:
        """Return the times at which punctuations are due (`PunctuationQueue.due`), by stream time and by the wall
        clock."""
        return self._runner.punctuation_schedule()

    def resume_punctuations(self, schedule: tuple[Due, Due]) -> None:
        """Continue the punctuation times of the same task in another process (`schedule`). Called after `start`."""
        self._runner.resume_punctuations(schedule)

    def store(self, name: str) -> Any:
        """Return a store as user code sees it."""
        return self._stores.typed(name)

    def call(self, function: Callable[[], T]) -> T:
        """Call `function`, and add its store writes to the boundary. For tools and tests."""
        with self._running():
            return self._runner.call(function, self._task_context.wall_ms())

    def flush(self) -> None:
        """Make the caches log and emit their waiting updates. Raises the errors that `process` raises."""
        if self.unflushed:
            with self._running(TaskState.LOCKED):
                self._runner.flush()

    def apply(self, *, last: bool = False) -> None:
        """Write the confirmed commit, if there is one, to the engines. Then write the commits that wait for the disk,
        if that is due (not in the `last` call).

        Raises `StateBusyError` while the engines are busy. Nothing is lost: repeat the call after the error's
        `pause_ms`. In the `last` call a busy engine raises a plain `StateError` instead. After this error, or another
        `StateError` of the confirmed commit, the commit is restored at the next open.
        """
        self._commits.apply(last=last)
        if not last:  # at the task's end this isn't needed: the waiting commits are complete and stay with the storage
            self._commits.write_waiting()

    # -- requests that any thread may make

    def interrupt(self) -> None:
        """Make `process` return after the record in work."""
        self._runner.limit = 0

    def invalidate(self) -> None:
        """Raise the epoch. The record in work becomes void, and `process` returns after this record. Unsent outputs of
        earlier records are dropped. The caller then calls `roll_back` or `close`."""
        with self._boundary.lock:
            self._boundary.epoch += 1
            self._boundary.outputs = []

    # -- commit

    def commit_requested(self) -> bool:
        """True if user code has asked for a commit, there is something to commit, and the task can be committed now."""
        if not (self._task_context.commit_requested and self._initialised) or self.applying:
            return False
        # A task in quarantine leaves its waiting updates in the caches.
        held = self.state is TaskState.QUARANTINED and self.unflushed
        return not held and self.commit_needed()

    def position(self, but: Collection[str] = ()) -> int:
        """Return the sum of the stores' changelog offsets after the last confirmed commit. This commit counts even
        while another thread is still writing it to the engines. The stores in `but` aren't counted."""
        to_apply = self._commits.to_apply  # read first: otherwise a commit could be missing in both
        offsets = {store: offset for store, offset in self.changelog_offsets().items() if store not in but}
        return sum(max(offset or 0, to_apply.get(store, 0)) for store, offset in offsets.items())

    def reached(self) -> dict[TopicPartition, int]:
        """Return the offset after the last finished record, by input partition."""
        return {partition: buffer.next_offset() for partition, buffer in self.input.buffers.items()}

    def request_commit(self) -> None:
        """Request a commit, as user code can do it. Any thread may call this."""
        self._task_context.commit_soon()

    def commit_needed(self) -> bool:
        """True if anything has changed since the last frozen boundary. Trailing control records alone count, too."""
        return self._commits.needed()

    @property
    def unflushed(self) -> bool:
        """True if updates wait in caches. While they wait, the last boundary can't be committed."""
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
        """The monotonic time at which `apply` should write the commits that wait for the disk. None if none waits."""
        return self._stores.write_due_ms

    @property
    def committable(self) -> bool:
        """True if the last boundary can be frozen now, because nothing has to be flushed, applied or restored first."""
        return self._initialised and not (self._commits.applying or self._commits.incomplete or self.unflushed)

    def uncommitted_bytes(self) -> int:
        """Return the approximate memory of the writes that aren't in the engines yet. At the limit, the task is
        committed early."""
        return self._stores.uncommitted_bytes()

    def kept_bytes(self) -> int:
        """Return the approximate memory that stores need for the order of the updates that they keep back."""
        return self._stores.kept_bytes()

    def cache_bytes(self) -> int:
        """Return the approximate memory of the updates that wait in the stores' caches."""
        return sum(store.buffer.bytes for store in self._runner.cached if store.buffer is not None)

    def held(self) -> Mapping[str, tuple[int, int]]:
        """Return the number and the bytes of the updates that each store keeps back, by store. Any thread may ask."""
        return self._stores.held()

    def take_outputs(self) -> list[Emitted]:
        """Return the outputs of finished records, in order. The caller sends them."""
        return self._boundary.take_outputs()

    def put_back(self, outputs: Sequence[Emitted]) -> None:
        """Take back the last ones of the taken outputs, because the client had no room for them. These outputs will be
        sent before all other ones."""
        self._boundary.put_back(outputs)

    def output_bytes(self) -> int:
        """Return the approximate memory of the waiting outputs and of the taken outputs that are retained."""
        return self._boundary.output_bytes()

    def set_retained_output_bytes(self, count: int) -> None:
        """Set the number of bytes of the taken outputs that are retained until they are confirmed."""
        self._boundary.retained_bytes = count

    @property
    def has_retained_outputs(self) -> bool:
        """True if taken outputs are retained until they are confirmed."""
        return self._boundary.retained_bytes > 0

    def freeze(self) -> PendingCommit:
        """Flush the caches, then return the last boundary as a commit. The flush raises the errors that `process`
        raises."""
        self.flush()
        commit = self.freeze_if_flushed()
        if commit is None:
            raise OwnershipError(f"task {self.id}: another thread works on it. This is a bug")
        return commit

    def freeze_if_flushed(self) -> PendingCommit | None:
        """Return the last boundary as a commit. Returns None if an update waits in a cache: another thread may be
        processing, so that the caches can't be flushed here."""
        self.lifecycle.expect(TaskState.READY, TaskState.RUNNING, TaskState.LOCKED, TaskState.QUARANTINED)
        return self._commits.freeze(self._task_context)

    def confirmed(self, commit: PendingCommit, changelog_offsets: Mapping[str, int]) -> None:
        """Note that Kafka has confirmed `commit`. `apply` writes it later.

        `changelog_offsets`: for each store, the offset after the store's last changelog record of this commit. A store
        without writes needs no offset.
        """
        self._commits.confirmed(commit, changelog_offsets)

    def applied(self, commit: PendingCommit, changelog_offsets: Mapping[str, int]) -> None:
        """Note that Kafka has confirmed `commit`, and write it to the engines. Raises the errors that `apply` raises.
        """
        self.confirmed(commit, changelog_offsets)
        self.apply()

    def gone(self) -> dict[TopicPartition, int]:
        """Return the time (ms) up to which rows have expired by the last confirmed commit, for each partition of the
        trimmed changelogs."""
        return self._stores.gone(self._commits.committed.memory)

    def is_pending(self, commit: PendingCommit) -> bool:
        """True if `commit` was neither confirmed nor thawed, and the task wasn't rolled back after the freeze."""
        return self._commits.is_pending(commit)

    def thaw(self, commit: PendingCommit) -> None:
        """Add a failed commit to the next commit, under `at_least_once`. Outputs that were sent are not taken back."""
        self._commits.thaw(commit)

    def roll_back(self) -> int:
        """Raise the epoch, return to the last commit, and drop all later work and all buffered input. Returns the
        number of input offsets that were processed since that commit. Their records will be fetched and processed once
        more.

        The program has ended. The caller then calls `start`, with the offsets that Kafka has, and `initialise`.
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
        """Apply the confirmed commit, and close the processors. The processors are closed even if `apply` raises.

        Raises the errors of both. Only `recycle` or `close` may follow.
        """
        self.lifecycle.move(TaskState.CLOSING)
        try:
            self.apply(last=True)
        finally:
            self.end_program()

    def recycle(self) -> TaskStorage:
        """End the task, unless `end` was called before, write the commits that wait, and return the open stores. Writes
        that aren't applied are dropped. After an error, the stores are closed."""
        try:
            if self.state is not TaskState.CLOSING:
                self.end()
            with suppress(StateError):  # the commit still waits, and what a standby restores is written after it
                self._stores.write_waiting()
            return self._stores.release()
        except BaseException:
            self._stores.close()
            raise
        finally:
            self.lifecycle.move(TaskState.CLOSED)

    def close(self) -> None:
        """Close everything. Unapplied writes are dropped. Harmless when repeated. Raises the errors that `end` raises,
        after everything is closed."""
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
        """Close the processors, unless they are closed. Raises their errors. After this call the task can only be
        ended."""
        try:
            self._program.end()
        finally:
            self._task_context.close_global_stores()
            self.input.clear()

    # -- below

    def _seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        self.input.seek(positions)
        self._runner.settle()
