"""`UpdaterHooks`: how a state updater shares the reads of changelogs, and treats errors of single tasks.

*Guarantees*: an error of one task ends only the restoration of this task. While active tasks have much to restore,
standbys get one record for every `restore_active_weight` records of active tasks. The active tasks share their records
in proportion to the weights of their sub-topologies.
*Assumes*: the updater's thread makes it. The `ChangelogReader` of the same thread calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from milestones.m1_state_updater.restore_quota import RestoreQuota
from milestones.m1_state_updater.restore_shares import RestoreShares
from milestones.restoration.changelog_reader import MUCH
from milestones.restoration.changelogs import ActiveChangelogs, Changelogs

if TYPE_CHECKING:
    from confluent_kafka import Message

    from milestones.common.kafka.consumers import AssignedConsumer, Fetched
    from milestones.common.records import TopicPartition
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task

log: Final = logging.getLogger(__name__)

BATCH = 2_000
"""Records per round, about as many as one write to an engine takes. A message to the updater waits for the end of a
round, so a round is short."""

SAMPLES = 8
"""The number of records in a batch whose bytes are counted."""

WAIT_MS = 10
"""The longest wait of a round for its first record, while an active task restores."""


class UpdaterHooks:
    """*Owns*: the tasks that failed, until `take_errors`; the quota of active tasks and standbys; the shares of
    sub-topologies.

    For metrics, all ints: `active_records` and `standby_records` are the numbers of records taken, `active_ns` and
    `standby_ns` the times in which they were applied. `calls` is the number of fetches that brought records.
    """

    active_records: int
    standby_records: int
    active_ns: int
    standby_ns: int
    calls: int

    def __init__(self, active_weight: int, weights: Mapping[int, int] | None = None) -> None:
        """`active_weight`: `restore_active_weight`; `weights`: `task_priorities`."""
        self._quota, self._shares = RestoreQuota(active_weight), RestoreShares(weights or {})
        self._failed: list[tuple[Task | StandbyTask, BaseException]] = []
        self.bytes_per_record: dict[TopicPartition, float] = {}
        self.active_records = self.standby_records = self.active_ns = self.standby_ns = self.calls = 0

    def take_errors(self) -> list[tuple[Task | StandbyTask, BaseException]]:
        """Return the tasks that have failed since the last call, each with its error."""
        failed, self._failed = self._failed, []
        return failed

    def fetch(self, consumer: AssignedConsumer, *, restoring: bool) -> Fetched:
        fetched = consumer.fetch(BATCH, WAIT_MS if restoring else 0)
        self.calls += bool(fetched.records)
        return fetched

    def apply(
        self, changelogs: Changelogs, partition: TopicPartition, messages: list[Message], apply: Callable[[], None]
    ) -> None:
        began = perf_counter_ns()
        if messages:
            self._weigh(partition, messages)
        apply()
        taken_ns = perf_counter_ns() - began
        if isinstance(changelogs, ActiveChangelogs):
            self._quota.took(active=len(messages))
            self._shares.took(changelogs.task.id.subtopology, len(messages))
            self.active_records, self.active_ns = self.active_records + len(messages), self.active_ns + taken_ns
        else:
            self._quota.took(standby=len(messages))
            self.standby_records, self.standby_ns = self.standby_records + len(messages), self.standby_ns + taken_ns

    def _weigh(self, partition: TopicPartition, messages: list[Message]) -> None:
        """Count the bytes of a few of the messages. A few are enough for an estimate."""
        sample = messages[:: max(1, len(messages) // SAMPLES)]
        size = sum(len(message) + len(message.key() or b"") for message in sample) / len(sample)
        self.bytes_per_record[partition] = 0.8 * self.bytes_per_record.get(partition, size) + 0.2 * size

    def standbys_stand_back(self, now_ms: int, remaining: int) -> bool:
        return not self._quota.standbys_read(contended=remaining >= MUCH)

    def stand_back(self, now_ms: int, left: Mapping[int, int]) -> Set[int]:
        return self._shares.stand_back(now_ms, left)

    def failed(self, task: Task | StandbyTask, error: Exception) -> bool:
        log.error("task %s can't be restored: %s", task.id, error)
        self._failed.append((task, error))
        return True
