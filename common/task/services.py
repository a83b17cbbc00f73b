"""What operators may use of their task (`program.TaskServices`), and what a task is told about its surroundings.

*Guarantees*: an emitted output is in the scope of the record in work; skipped records are counted, and logged at
times.
*Assumes*: the task's thread calls it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from milestones.common.clock import Clock
from milestones.common.records import Emitted, TaskId
from milestones.common.task.punctuation import Punctuation
from milestones.common.topology.handlers import Handler, LogAndFail
from milestones.common.topology.program import PunctuationType, RecordContext

if TYPE_CHECKING:
    from milestones.common.task.runner import Runner

log = logging.getLogger(__name__)

FAIL: Final = LogAndFail()


@dataclass(frozen=True)
class TaskSettings:
    """What all tasks of a thread are told.

    `cache_max_bytes`: this task's share of `statestore_cache_max_bytes`, 0 for no caches. `max_remembered`: values
    remembered per store. `transactional_id` goes into the offset metadata. `config`: what user code sees as the
    application's config. `partitions_of`: partitions of a sink's topic. `count_nodes`: count the records of each node.
    """

    application_id: str
    clock: Clock
    partitions_of: Callable[[str], int]
    config: Mapping[str, Any] = field(default_factory=dict)
    transactional_id: str = ""
    max_task_idle_ms: int = 0
    cache_max_bytes: int = 0
    max_remembered: int = 32_768
    count_nodes: bool = False
    deserialization_handler: Handler = FAIL
    processing_handler: Handler = FAIL
    production_handler: Handler = FAIL


class Services:
    """`program.TaskServices` of one task."""

    def __init__(self, task: TaskId, settings: TaskSettings, runner: Runner, store: Callable[[str], Any]) -> None:
        self.task_id = task
        self.application_id = settings.application_id
        self.record: RecordContext = runner.record
        self.config = settings.config
        self.partitions_of = settings.partitions_of
        self.wall_ms = settings.clock.wall_ms
        self.dropped_records: Counter[str] = Counter()
        self.commit_requested = False
        self.store = store
        self._runner = runner
        self.emit: Callable[[Emitted], None] = runner.scope.outputs.append

    def schedule(
        self, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None], node: str
    ) -> Punctuation:
        if kind == "stream-time":
            return self._runner.stream_punctuations.schedule(node, callback, 0, interval_ms)
        return self._runner.wall_punctuations.schedule(node, callback, self.wall_ms() + interval_ms, interval_ms)

    def request_commit(self) -> None:
        self.commit_requested = True

    def stream_time(self) -> int:
        return self._runner.stream_time

    def dropped(self, node: str, reason: str) -> None:
        """Count, and log the 1st, 2nd, 4th, 8th... of a node, so that a flood of them doesn't flood the log."""
        self.dropped_records[node] += 1
        count = self.dropped_records[node]
        if count & (count - 1) == 0:
            log.warning(
                "task %s: %s skipped a record at %s (%s); %d so far",
                self.task_id, node, self.record.metadata or "no input record", reason, count,
            )  # fmt: skip
