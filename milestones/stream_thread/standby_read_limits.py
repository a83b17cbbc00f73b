"""`CommittedLimits`: asks for the committed offsets that standbys need. Up to these offsets standbys may read source
topics that serve as changelogs, and drop rows that have been emitted.

*Guarantees*: there is one question at a time. The next one follows `INTERVAL_MS` after the last answer, or sooner when
a standby needs a partition that isn't known yet. A lost membership only delays the answer. If the coordinator refuses a
question, an error is raised, because the coordinator would refuse an active task's question, too.
*Assumes*: driven by the thread that owns the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import MembershipError
from milestones.common.kafka.membership import Committed
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.metadata import NOT_COMMITTED
from milestones.common.task.standby import StandbyTask
from milestones.stream_thread.task_registry import Phase

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients
    from milestones.stream_thread.task_registry import TaskRegistry

INTERVAL_MS = 1_000


class CommittedLimits:
    """*Sends*: questions for committed offsets. *Receives*: `Committed`."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._clients = clients
        self._answers: Mailbox[Committed] = Mailbox(10, f"{context.name} limits of standbys")
        self._asked: frozenset[TopicPartition] = frozenset()
        self._known: frozenset[TopicPartition] = frozenset()
        self._moves, self._followed = 0, frozenset[TopicPartition]()
        self._number = 0
        self._next_ms = 0

    def run_once(self, tasks: TaskRegistry, now_ms: int) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
        """Return the committed offsets of all input partitions that standbys need. Returns None if no answer has come
        since the last call. A partition without a committed offset has 0."""
        news: Mapping[TopicPartition, OffsetAndMetadata] | None = None
        for answer in self._answers.drain():
            if isinstance(answer.error, MembershipError):
                raise answer.error
            if answer.error is None:
                news = {p: answer.offsets.get(p, NOT_COMMITTED) for p in self._asked}
                self._known = self._asked
            self._asked, self._next_ms = frozenset(), now_ms + INTERVAL_MS
        if tasks.moves != self._moves:
            self._moves = tasks.moves
            standbys = [entry.task for entry in tasks.of(Phase.STANDBY) if isinstance(entry.task, StandbyTask)]
            self._followed = frozenset[TopicPartition]().union(
                *(standby.source_changelogs | standby.told_by for standby in standbys)
            )
        partitions = self._followed
        if partitions and not self._asked and (now_ms >= self._next_ms or partitions - self._known):
            self._number, self._asked = self._number + 1, partitions
            self._clients.member.fetch_offsets(self._number, partitions, self._answers)
        return news
