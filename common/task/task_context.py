"""`TaskContext` is the set of services that a task offers to its operators (`program.TaskServices`). `TaskSettings`
holds the settings of tasks.

*Guarantees*: an emitted output becomes part of the scope of the record in work. So do the requests of user code
(schedule, cancel, commit). Skipped records are counted, and some of them are logged.
*Assumes*: the task's thread calls the methods.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from milestones.common.clock import Clock
from milestones.common.records import Emitted, TaskId
from milestones.common.state.global_stores import GlobalReaders, GlobalStores
from milestones.common.state.read_cache import ReadCaches
from milestones.common.state.record_caches import RecordCaches
from milestones.common.task.punctuation import Punctuation, first_due
from milestones.common.topology.handlers import Handler, LogAndFail
from milestones.common.topology.program import PunctuationType, RecordContext, Tally

if TYPE_CHECKING:
    from milestones.common.state.cells import Cell, Cells
    from milestones.common.task.profile import Profile
    from milestones.common.task.runner import Runner

log: Final = logging.getLogger(__name__)

FAIL: Final = LogAndFail()


@dataclass(frozen=True)
class TaskSettings:
    """The settings of all tasks of a thread.

    `record_caches`, `read_caches` and `global_stores` are those of the instance. `transactional_id` goes into the
    offset metadata. `config`: the application's config, which user code can read. `partitions_of(topic)` returns the
    partition count of a sink's topic. `count_nodes`: the records of each node are counted. `profile`: collects the
    times of each node, if they are measured. `logs_at_commit`: stores write their changelog records at a commit, and
    only the last value of each key where keys collapse. By default they log each write. `refuses_behind`: if a store
    has no changelog and its data isn't that of the last commit, the task refuses to begin.
    """

    application_id: str
    clock: Clock
    partitions_of: Callable[[str], int]
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    transactional_id: str = ""
    max_task_idle_ms: int = 0
    record_caches: RecordCaches = field(default_factory=RecordCaches)
    global_stores: GlobalStores = field(default_factory=GlobalStores)
    read_caches: ReadCaches = field(default_factory=ReadCaches)
    count_nodes: bool = False
    profile: Profile | None = None
    logs_at_commit: bool = False
    refuses_behind: bool = False
    deserialization_handler: Handler = FAIL
    processing_handler: Handler = FAIL
    production_handler: Handler = FAIL

    @property
    def transactional(self) -> bool:
        """True if a roll-back makes Kafka abort the outputs that were sent."""
        return bool(self.transactional_id)

    def with_thin_logs(self) -> TaskSettings:
        """Return a copy of these settings in which changelogs get one record per key and commit, and every update is
        emitted, whatever the size of the cache."""
        return replace(self, logs_at_commit=True, record_caches=RecordCaches(0))


class TaskContext:
    """The services of one task (`program.TaskServices`)."""

    def __init__(
        self,
        task: TaskId,
        settings: TaskSettings,
        runner: Runner,
        store: Callable[[str], Any],
        cells: Cells,
        tally: Callable[[str, str], Tally],
    ) -> None:
        self.task_id = task
        self.application_id: str = settings.application_id
        self.record: RecordContext = runner.record
        self.config: Mapping[str, Any] = settings.config
        self.partitions_of: Callable[[str], int] = settings.partitions_of
        self.wall_ms: Callable[[], int] = settings.clock.wall_ms
        self.dropped_records: Counter[str] = Counter()
        self.commit_requested: bool = False
        self.store: Callable[[str], Any] = store
        self.kept: Callable[[str], Cell] = cells.kept
        self.time: Callable[[str, int], Cell] = cells.time
        self.tally: Callable[[str, str], Tally] = tally
        self._readers = GlobalReaders(settings.global_stores, task, runner.record)
        self.global_store: Callable[[str], Any | None] = self._readers.store
        self._runner = runner
        self.emit: Callable[[Emitted], None] = runner.scope.outputs.append
        self._ask = runner.scope.requests.add

    def close_global_stores(self) -> None:
        """Close the program's handles of global stores, as the program ends."""
        self._readers.close()

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None], node: str,
        start_ms: int | None = None,
    ) -> Punctuation:
        runner = self._runner
        queue, first_ms, now_ms = runner.stream_punctuations, 0, runner.stream_time
        if kind == "wall-clock-time":
            queue, now_ms = runner.wall_punctuations, self.wall_ms()
            first_ms = now_ms + interval_ms
        if start_ms is not None:
            first_ms = first_due(start_ms, interval_ms, now_ms)
        return queue.schedule(node, callback, first_ms, interval_ms, self._ask, start_ms)

    def request_commit(self) -> None:
        self._ask(self.commit_soon)

    def commit_soon(self) -> None:
        """Request a commit without waiting for the end of the record in work."""
        self.commit_requested = True

    def stream_time(self) -> int:
        return self._runner.stream_time

    def dropped(self, node: str, reason: str) -> None:
        """Count a skipped record. Only the 1st, 2nd, 4th, 8th... of a node is logged, so that many of them don't flood
        the log."""
        self.dropped_records[node] += 1
        count = self.dropped_records[node]
        if count & (count - 1) == 0:
            log.warning(
                "task %s: %s skipped a record at %s (%s); %d so far",
                self.task_id, node, self.record.metadata or "no input record", reason, count,
            )  # fmt: skip
