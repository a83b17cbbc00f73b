"""Restoration of the baseline: inline, in the stream thread, a batch per round.

*Guarantees*: those of `restoration/changelog_reader.py`. While an active task has much to restore standbys get a share
of the time: the task comes first, and the standbys don't starve. An error of one task is the stream thread's.
*Assumes*: driven by the stream thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from milestones.restoration.changelog_reader import MUCH, ChangelogReader

if TYPE_CHECKING:
    from confluent_kafka import Message

    from milestones.common.kafka.consumers import AssignedConsumer, Fetched
    from milestones.common.records import TopicPartition
    from milestones.common.task.standby import StandbyTask
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext
    from milestones.parts import FailedTask, ReadClients
    from milestones.restoration.changelogs import Changelogs

BATCH = 1_000
"""Changelog records per round."""

TURN_MS, STANDBYS_SHARE_MS = 5_000, 1_000
"""So much of each turn is the standbys' too. Long turns: whoever stands back loses what was prefetched for it."""

LOOK_MS = 10
"""Nobody restores while the stream thread waits for input."""


class InlineHooks:
    """*Owns*: since when active tasks have had much to restore."""

    def __init__(self) -> None:
        self._active_since_ms: int | None = None

    def fetch(self, consumer: AssignedConsumer, *, restoring: bool) -> Fetched:
        return consumer.fetch(BATCH, timeout_ms=0)

    def apply(
        self, changelogs: Changelogs, partition: TopicPartition, messages: list[Message], apply: Callable[[], None]
    ) -> None:
        apply()

    def standbys_stand_back(self, now_ms: int, remaining: int) -> bool:
        """Whether it is the active tasks' part of the turn."""
        if remaining < MUCH:
            self._active_since_ms = None
            return False
        if self._active_since_ms is None:
            self._active_since_ms = now_ms
        return (now_ms - self._active_since_ms) % TURN_MS < TURN_MS - STANDBYS_SHARE_MS

    def failed(self, task: Task | StandbyTask, error: Exception) -> bool:
        return False


class InlineRestoration(ChangelogReader):
    """The part *restoration*: a `ChangelogReader` that the stream thread drives itself."""

    def __init__(self, context: ThreadContext, clients: ReadClients) -> None:
        super().__init__(context, clients, InlineHooks())

    @property
    def poll_interval_ms(self) -> int:
        return LOOK_MS

    def take_failed(self) -> list[FailedTask]:
        return []
