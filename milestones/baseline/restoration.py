"""`InlineRestoration` is the restoration of the baseline: the stream thread restores a batch per round.

*Guarantees*: everything that `restoration/changelog_reader.py` guarantees. While an active task has much to restore,
standbys get a smaller share of the time, but never none. An error of one task is raised in the stream thread, and
usually ends it.
*Assumes*: the stream thread makes all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
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
"""The number of changelog records in a round."""

PERIOD_MS, STANDBYS_SHARE_MS = 5_000, 1_000
"""The length of a period, and the part of it in which standbys also read. Periods are long because a standby that stops
reading loses its prefetched records."""

LOOK_MS = 10
"""The longest wait for input while a task restores: the stream thread restores nothing while it waits."""


class InlineHooks:
    """Decides for the baseline when standbys read. *Owns*: the time since which active tasks have had much to
    restore."""

    def __init__(self) -> None:
        self._active_since_ms: int | None = None

    def fetch(self, consumer: AssignedConsumer, *, restoring: bool) -> Fetched:
        return consumer.fetch(BATCH, timeout_ms=0)

    def apply(
        self, changelogs: Changelogs, partition: TopicPartition, messages: list[Message], apply: Callable[[], None]
    ) -> None:
        apply()

    def standbys_stand_back(self, now_ms: int, remaining: int) -> bool:
        """Return True in the part of a period in which only active tasks read."""
        if remaining < MUCH:
            self._active_since_ms = None
            return False
        if self._active_since_ms is None:
            self._active_since_ms = now_ms
        return (now_ms - self._active_since_ms) % PERIOD_MS < PERIOD_MS - STANDBYS_SHARE_MS

    def stand_back(self, now_ms: int, left: Mapping[int, int]) -> Set[int]:
        return frozenset()

    def failed(self, task: Task | StandbyTask, error: Exception) -> bool:
        return False


class InlineRestoration(ChangelogReader):
    """The part *restoration*: a `ChangelogReader` that the stream thread calls itself."""

    def __init__(self, context: ThreadContext, clients: ReadClients) -> None:
        super().__init__(context, clients, InlineHooks())

    @property
    def poll_interval_ms(self) -> int:
        return LOOK_MS

    def take_failed(self) -> list[FailedTask]:
        return []
