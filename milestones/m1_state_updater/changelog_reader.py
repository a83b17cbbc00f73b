"""What a state updater does with its restore consumer: the baseline's restoration, shared by weight, error by error.

*Guarantees*: those of `baseline/restoration.py`; an error of one task ends that task's restoration only.
*Assumes*: made and driven by the updater's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from milestones.baseline.restoration import MUCH, InlineRestoration
from milestones.common.errors import MilestonesError
from milestones.m1_state_updater.messages import Standing
from milestones.m1_state_updater.restore_quota import Shares
from milestones.restoration.changelogs import ActiveChangelogs, Changelogs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from milestones.common.kafka.consumers import Fetched
    from milestones.common.records import TaskId, TopicPartition
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients

log = logging.getLogger(__name__)

BATCH = 2_000
"""Records per round, about what one write to an engine takes: a round is what a message to the updater waits for."""

SAMPLES = 8
"""Records of a batch whose bytes are counted."""

WAIT_MS = 10
"""For the first record of a round, while an active task restores."""


class Reading(InlineRestoration):
    """For metrics, all ints: `active_records`, `standby_records` taken; `active_ns`, `standby_ns` that applying them
    took; `calls` of fetch that brought any."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        super().__init__(context, clients)
        self._shares = Shares(context.config.restore_active_weight)
        self._failed: list[tuple[Task | StandbyTask, BaseException]] = []
        self.bytes_per_record: dict[TopicPartition, float] = {}
        self.active_records = self.standby_records = self.active_ns = self.standby_ns = self.calls = 0

    def take_errors(self) -> list[tuple[Task | StandbyTask, BaseException]]:
        """Tasks that have failed, each with its error."""
        failed, self._failed = self._failed, []
        return failed

    @property
    def restores(self) -> bool:
        """An active task restores, or is about to."""
        return any(id.subtopology not in self._paused for id in self._active)

    def counts(self) -> tuple[int, int, int, int]:
        """Active tasks and standbys that are worked on, then those that are paused."""
        active = sum(id.subtopology in self._paused for id in self._active)
        standbys = sum(id.subtopology in self._paused for id in self._standbys)
        return len(self._active) - active, len(self._standbys) - standbys, active, standbys

    def standings(self) -> Iterator[tuple[TaskId, Standing]]:
        for id, active in self._active.items():
            yield id, Standing(active.position(), remaining=sum(active.missing().values()))
        for id, standby in self._standbys.items():
            yield id, Standing(standby.position(), lag=standby.lag())

    def changelogs(self) -> Iterator[Changelogs]:
        """The active tasks'."""
        yield from self._active.values()

    def _fetch(self) -> Fetched:
        assigned = self._consumer.assigned
        waits = self.restores and any(self._by_partition[p].task.id in self._active for p in assigned)
        fetched = self._consumer.fetch(BATCH, WAIT_MS if waits else 0)
        self.calls += bool(fetched.records)
        return fetched

    def _alone(self, changelogs: Changelogs, act: Callable[[Changelogs], None]) -> None:
        try:
            act(changelogs)
        except (MilestonesError, KafkaException) as error:
            id = changelogs.task.id
            log.error("task %s can't be restored: %s", id, error)
            task = (self._active.pop(id, None) or self._standbys.pop(id)).task
            self._failed.append((task, error))
            self._leave(changelogs)

    def _apply(
        self, partition: TopicPartition, messages: list[Message], end: int | None, changelogs: Changelogs
    ) -> None:
        began = perf_counter_ns()
        if messages:
            self._weigh(partition, messages)
        super()._apply(partition, messages, end, changelogs)
        taken_ns = perf_counter_ns() - began
        if isinstance(changelogs, ActiveChangelogs):
            self._shares.took(active=len(messages))
            self.active_records, self.active_ns = self.active_records + len(messages), self.active_ns + taken_ns
        else:
            self._shares.took(standby=len(messages))
            self.standby_records, self.standby_ns = self.standby_records + len(messages), self.standby_ns + taken_ns

    def _weigh(self, partition: TopicPartition, messages: list[Message]) -> None:
        """A few of them, as that is for an estimate only."""
        sample = messages[:: max(1, len(messages) // SAMPLES)]
        size = sum(len(message) + len(message.key() or b"") for message in sample) / len(sample)
        self.bytes_per_record[partition] = 0.8 * self.bytes_per_record.get(partition, size) + 0.2 * size

    def _standing_back(self, now_ms: int) -> bool:
        going = [active for id, active in self._active.items() if id.subtopology not in self._paused]
        much = sum(sum(changelogs.missing().values()) for changelogs in going) >= MUCH
        return not self._shares.standbys_read(contended=much)
