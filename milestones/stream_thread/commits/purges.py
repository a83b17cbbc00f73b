"""Asks the housekeeper to delete records that no one needs after a commit: processed records of repartition topics, and
old records of changelogs.

*Guarantees*: records of repartition topics are purged only when their offsets have been committed. If the housekeeper
has no room for a request to purge, the request is made later.
*Assumes*: driven by the thread that owns the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from milestones.instance.admin_thread import Purge
from milestones.instance.changelog_trim import Trim

if TYPE_CHECKING:
    from milestones.common.records import OffsetAndMetadata, TopicPartition
    from milestones.common.task.task import Task
    from milestones.instance.context import ThreadContext


class Purges:
    """*Owns*: the offsets to which repartition topics may be purged, and the times up to which rows of changelogs have
    expired. *Sends*: `Purge`, `Trim`."""

    def __init__(self, context: ThreadContext) -> None:
        self._context = context
        self._last_ms = context.clock.monotonic_ms()
        self._purgeable: dict[TopicPartition, int] = {}
        self._gone: dict[TopicPartition, int] = {}
        self._trimmed = False

    def note(self, committed: Mapping[TopicPartition, OffsetAndMetadata], tasks: Iterable[Task]) -> None:
        """Record that these offsets of these tasks were committed."""
        internal = self._context.application.repartition_topics
        self._purgeable.update({p: at.offset for p, at in committed.items() if p.topic in internal})
        for task in tasks:
            self._gone |= task.gone()
        if not self._trimmed:  # early: the request may show that a changelog's retention is too short
            self._trimmed = True
            self._trim()

    def send_when_due(self, now_ms: int) -> None:
        """Send the requests, every `repartition_purge_interval_ms`."""
        if now_ms - self._last_ms < self._context.config.repartition_purge_interval_ms:
            return
        self._last_ms = now_ms
        if self._purgeable and self._context.housekeeper.try_put(Purge(self._purgeable)):
            self._purgeable = {}
        self._trim()

    def _trim(self) -> None:
        """Ask the housekeeper to trim changelogs. The request has the times up to which rows have expired, by the
        commits since the last request."""
        gone, self._gone = self._gone, {}
        if gone:
            self._context.housekeeper.try_put(Trim(gone))
