"""Where tasks begin: their committed offsets, read stable.

*Guarantees*: a task is in one question at a time; an answer to a question that a task isn't in any more isn't taken. A
task that was rolled back while the member joins waits for the new generation.
*Assumes*: driven by the thread that owns the member and the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from milestones.common.errors import MembershipError, TimeoutExceededError
from milestones.common.kafka.membership import Committed
from milestones.common.mailbox import Mailbox
from milestones.common.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Clients
    from milestones.stream_thread.task_registry import AssignedTask

GATHER_MS = 100
"""How long tasks with open stores wait for tasks whose stores are being opened, so that all begin together. A partition
that is assigned during a fetch of others is fetched up to `fetch.wait.max.ms` late, after that one's answer."""


class Positioning:
    """*Owns*: which task is in which question, and since when. *Sends*: questions for committed offsets. *Receives*:
    `Committed`."""

    def __init__(self, context: ThreadContext, clients: Clients) -> None:
        self._clients, self._timeout_ms = clients, context.config.task_timeout_ms
        self._answers: Mailbox[Committed] = Mailbox(1_000, f"{context.name} committed offsets")
        self._asked: dict[AssignedTask, tuple[int, int]] = {}
        self._number = 0
        self._opening_since_ms: int | None = None

    def forget(self, task: AssignedTask) -> None:
        """The task waits for no answer any more."""
        self._asked.pop(task, None)

    def run_once(
        self, tasks: list[AssignedTask], now_ms: int, *, opening: bool
    ) -> list[tuple[AssignedTask, Mapping[TopicPartition, OffsetAndMetadata]]]:
        """Ask for those of the tasks that aren't in a question; the tasks that have an answer by now, with what is
        committed. `opening`: the stores of others are being opened. `MembershipError`: the coordinator refuses to say
        it; `TimeoutExceededError`."""
        answered = []
        for answer in self._answers.drain():
            if isinstance(answer.error, MembershipError):
                raise answer.error
            for task in [task for task, (number, _) in self._asked.items() if number == answer.number]:
                del self._asked[task]
                if answer.error is None:
                    answered.append((task, answer.offsets))
        known = {task for task, _ in answered}
        # While the member joins, the old generation of a task that was rolled back could commit nothing more.
        joining = self._clients.member.joining() if tasks else False
        ready = [t for t in tasks if t not in self._asked and t not in known and not (joining and t.rolled_back)]
        if self._gathered(now_ms, opening=opening) and ready:
            self._number += 1
            self._asked.update(dict.fromkeys(ready, (self._number, now_ms)))
            partitions = frozenset(partition for task in ready for partition in task.active_task.partitions)
            self._clients.member.fetch_offsets(self._number, partitions, self._answers)
        self._check_patience(now_ms)
        return answered

    def _gathered(self, now_ms: int, *, opening: bool) -> bool:
        if not opening:
            self._opening_since_ms = None
        elif self._opening_since_ms is None:
            self._opening_since_ms = now_ms
        return self._opening_since_ms is None or now_ms - self._opening_since_ms >= GATHER_MS

    def _check_patience(self, now_ms: int) -> None:
        since_ms = now_ms - self._timeout_ms
        late = sorted(str(task.id) for task, (_, asked_ms) in self._asked.items() if asked_ms < since_ms)
        if late:
            raise TimeoutExceededError(
                f"the committed offsets of tasks {', '.join(late)} didn't get stable within task_timeout_ms "
                f"({self._timeout_ms}): the coordinator is away, or a transaction of another instance pends on them"
            )
