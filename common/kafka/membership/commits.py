"""The commits that wait for the coordinator.

*Guarantees*: first in, first out; each is answered exactly once, at its deadline at the latest (plus one request).
*Assumes*: one owner, the member's machine.
"""

from __future__ import annotations

from collections import deque

from milestones.common.errors import MilestonesError
from milestones.common.kafka.membership.events import Commit
from milestones.common.kafka.membership.reactions import CommitRetriableError


class PendingCommits:
    """A queue whose head may have to wait before it is tried again."""

    def __init__(self, now_ms: int) -> None:
        self._waiting: deque[Commit] = deque()
        self._resume_ms = now_ms

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, commit: Commit) -> None:
        self._waiting.append(commit)

    def due(self, now_ms: int) -> Commit | None:
        """The one to send now, if any; it stays at the head until it is answered."""
        if self._waiting and self._resume_ms <= now_ms < self._waiting[0].deadline_ms:
            return self._waiting[0]
        return None

    def next_ms(self) -> int:
        """When the head can be tried again, or has to be given up."""
        return min(self._resume_ms, self._waiting[0].deadline_ms)

    def pause(self, until_ms: int) -> None:
        self._resume_ms = until_ms

    def answer(self, error: MilestonesError | None) -> None:
        """The head is done."""
        self._waiting.popleft().reply.try_put(error)

    def expire(self, now_ms: int) -> None:
        """Give up those whose time is over."""
        while self._waiting and now_ms >= self._waiting[0].deadline_ms:
            self.answer(CommitRetriableError("the offsets weren't committed in time: the coordinator didn't take them"))

    def reject(self, error: MilestonesError) -> None:
        """Answer all, with this error."""
        while self._waiting:
            self.answer(error)
