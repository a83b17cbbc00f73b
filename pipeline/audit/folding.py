"""Processes the history of one task once more, inside a Spark task, to find the expected outputs and stores.

1. every input record before `sure` through the runtime's own task, its outputs told, its stores committed;
2. those before `end` too: what they write may be in Kafka already, or not yet;
3. each store beside the fold of its changelog, without the keys that step 2 touched.

*Guarantees*: nothing is written to Kafka. No files are left on the disk. Outputs are in the order in which the task
made them.
*Assumes*: user code returns the same results for the same input. Where it is known that it may not, a doubt is
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from milestones.common.clock import SystemClock
from milestones.common.partitioner import partition_of
from milestones.common.records import KEY, TOPIC, Emitted, TopicPartition, output_of
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.storage import TaskStorage
from milestones.common.state.stores.kinds import layout_of
from milestones.common.task.task import Task, TaskSettings
from milestones.instance.application import Application
from milestones.pipeline.audit.computed import computed_records
from milestones.pipeline.audit.rows import FOLDED, Problem, RowKind, batches, headers_as_bytes
from milestones.pipeline.hosting.payload import Payload, unpack
from milestones.pipeline.reading import read
from milestones.pipeline.scratch import ScratchStore

if TYPE_CHECKING:
    import pyarrow as pa

    from milestones.common.config import StreamsConfig
    from milestones.common.task.buffers import InputRecord
    from milestones.pipeline.audit.plan import AuditedPartition, FoldJob, StoreRange

Row = tuple[Any, ...]

COMMIT_RECORDS = 50_000
"""The number of records between two commits of stores. These commits go to the local disk only."""

NOWHERE = TopicPartition("", -1)

_TOPIC_AND_KEY = itemgetter(TOPIC, KEY)


def fold(payload: Payload, jobs: Sequence[FoldJob], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the jobs with these numbers; Spark calls this function."""
    topology, config = unpack(payload)
    application = Application.of(topology, config)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            with Fold(application, config, jobs[number]) as one:
                yield from batches(one.rows(), FOLDED)


class Fold:
    """*Owns*: a task and its stores, in a separate folder."""

    def __init__(self, application: Application, config: StreamsConfig, job: FoldJob) -> None:
        self._application, self._config, self._job = application, config, job
        self._closing = ExitStack()
        self._directory = Path(self._closing.enter_context(TemporaryDirectory(prefix="milestones-audit-")))
        self._storage: TaskStorage
        self._task = self._open()
        self._own = self._task.changelog_topics
        self._now_ms = SystemClock().wall_ms()
        self._seq = self._uncommitted = 0
        self._counts = dict.fromkeys(self._task.partitions, 0)
        changelogs = application.subtopology(job.task.subtopology).changelogs
        self._stores = {topic: store for store, topic in changelogs.items()}
        self._touched: dict[str, set[bytes]] = {store: set() for store in changelogs}

    def __enter__(self) -> Fold:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def _open(self) -> Task:
        job, clock = self._job, SystemClock()
        sub = self._application.subtopology(job.task.subtopology)
        directory = StateDirectory(self._directory / "state", self._application.id, clock)
        self._closing.callback(directory.close)
        state = LocalStateManager(directory, open_engines("rocksdict"), "audit")
        settings = TaskSettings(
            application_id=self._application.id,
            clock=clock,
            partitions_of=job.partitions.__getitem__,
            config=self._config.as_dict(),
            deserialization_handler=self._config.deserialization_exception_handler,
            processing_handler=self._config.processing_exception_handler,
            production_handler=self._config.production_exception_handler,
        )

        def open_stores() -> TaskStorage:
            self._storage = state.open(job.task, sub.stores)
            return self._storage

        task = Task(job.task, sub, [source.partition for source in job.sources], settings, open_stores)
        task.open()
        self._closing.callback(task.close)
        return task

    # -- expected outputs

    def rows(self) -> Iterator[Row]:
        task = self._task
        task.start({source.partition: source.begin for source in self._job.sources}, {})
        yield from self._outputs(NOWHERE, -1, sure=True)
        yield from self._run({source: (source.begin, source.sure) for source in self._job.sources}, sure=True)
        self._commit()
        for partition, records in self._counts.items():
            yield self._row(RowKind.INPUT, source=partition, seq=records)
        yield from self._run({source: (source.sure, source.end) for source in self._job.sources}, sure=False)
        self._commit(sure=False)
        for doubt in self._doubts():
            yield self._row(RowKind.DOUBT, what=doubt)
        for store in self._job.stores:
            yield from self._compare(store)

    def _run(self, ranges: Mapping[AuditedPartition, tuple[int, int]], *, sure: bool) -> Iterator[Row]:
        task = self._task
        readers = {source.partition: self._read(source, *bounds) for source, bounds in ranges.items()}
        ends = {source.partition: end for source, (_, end) in ranges.items()}
        while True:
            for partition in [partition for partition in readers if not task.input.waiting_of(partition)]:
                batch = next(readers[partition], None)
                if batch is not None:
                    task.input.add(partition, batch)
                else:
                    task.input.reached_end(partition, ends[partition], self._now_ms)
                    del readers[partition]
            if not readers and not task.input.waiting():
                return
            yield from self._process(sure=sure)
            if self._uncommitted >= COMMIT_RECORDS:
                self._commit(sure=sure)

    def _process(self, *, sure: bool) -> Iterator[Row]:
        """Process records until the task needs the next batch of another partition; yield the rows of the outputs."""
        task, others = self._task, self._task.partitions[1:]
        while True:
            before = {partition: task.input.position(partition) for partition in others}
            if not task.process(1, self._now_ms):
                return
            moved = [partition for partition, position in before.items() if task.input.position(partition) != position]
            at = moved[0] if moved else task.partitions[0]
            self._uncommitted += 1
            if sure:
                self._counts[at] += 1
            yield from self._outputs(at, task.input.position(at) - 1, sure=sure)

    def _read(self, source: AuditedPartition, first: int, end: int) -> Iterator[Sequence[InputRecord]]:
        if source.computed is not None:
            return computed_records(source.computed, source.partition) if first == source.begin else iter(())
        return read(self._job.consumer, source.partition, first, end)

    def _outputs(self, source: TopicPartition, offset: int, *, sure: bool) -> Iterator[Row]:
        for output in self._task.take_outputs():
            if output[TOPIC] not in self._own:
                yield self._output(output, source, offset, sure=sure)
            elif not sure:
                self._touch([output])

    def _touch(self, outputs: Iterable[Emitted]) -> None:
        """Note the changelog keys that were written for input records of which it isn't known whether they are
        committed.
        """
        for topic, key in map(_TOPIC_AND_KEY, outputs):
            if topic in self._own and key is not None:
                self._touched[self._stores[topic]].add(key)

    def _output(self, output: Emitted, source: TopicPartition, offset: int, *, sure: bool) -> Row:
        topic, partition, key, value, time, headers, _ = output_of(output)
        self._seq += 1
        if partition < 0 and key is not None:
            partition = partition_of(key, self._job.partitions[topic])
        return (
            RowKind.OUTPUT, *self._job.task, self._seq, sure, source.topic, source.partition, offset,
            topic, partition, key, value, time, headers_as_bytes(headers), None, None,
        )  # fmt: skip

    def _row(
        self, kind: RowKind, *, source: TopicPartition = NOWHERE, seq: int = 0, at: TopicPartition = NOWHERE,
        entry: tuple[bytes | None, bytes | None, bytes | None] = (None, None, None), what: str | None = None,
    ) -> Row:
        key, value, other = entry
        return (
            kind, *self._job.task, seq, True, source.topic, source.partition, -1,
            at.topic, at.partition, key, value, -1, None, other, what,
        )  # fmt: skip

    def _commit(self, *, sure: bool = True) -> None:
        """Commit the task's writes to the stores on the local disk, without Kafka."""
        commit = self._task.freeze()
        self._touch(() if sure else commit.all_outputs())
        self._task.applied(commit, dict.fromkeys(self._touched, commit.number))
        self._uncommitted = 0

    def _doubts(self) -> Iterator[str]:
        by_stream_time, by_wall_clock = self._task.punctuation_schedule()
        if by_wall_clock:
            yield "it punctuates by the wall clock"
        if by_stream_time:
            yield "it punctuates by stream time, and each start of a task begins the rhythm anew"

    # -- stores compared with their changelogs

    def _compare(self, store: StoreRange) -> Iterator[Row]:
        namespace = self._storage.namespace(store.spec.name)
        touched, entries, layout = self._touched[store.spec.name], 0, layout_of(store.spec)
        with ScratchStore(self._directory / f"changelog-{store.spec.name}", store.spec) as found:
            found.fold(self._job.consumer, store.changelog, store.first, store.end)
            for local, expected, actual in beside(namespace.scan(None, None), found.entries()):
                if not layout.logs(local):
                    continue
                key = local if layout.key_of is None else layout.key_of(local)
                entries += expected is not None
                if expected != actual and key not in touched:
                    problem = difference(expected, actual)
                    yield self._row(
                        RowKind.DIFFERENCE, at=store.changelog, entry=(key, expected, actual), what=problem
                    )
        yield self._row(RowKind.STORE, at=store.changelog, seq=entries, what=store.spec.name)


def difference(expected: bytes | None, actual: bytes | None) -> Problem:
    if actual is None:
        return Problem.LOST
    return Problem.UNEXPECTED if expected is None else Problem.WRONG


def beside(
    one: Iterator[tuple[bytes, bytes]], other: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield all keys of two sorted stores, each with its value in both."""
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield left[0], left[1], None
            left = next(one, None)
        elif left is None or right[0] < left[0]:
            yield right[0], None, right[1]
            right = next(other, None)
        else:
            yield left[0], left[1], right[1]
            left, right = next(one, None), next(other, None)
