"""The last commit of a thread that is to stop.

    what is under way is over ---> the tasks rest ---> one commit of all of them ---> made, or given up with a log line

*Guarantees*: all work of the tasks is committed, or the log says that it isn't. Even then nothing is lost: records that
aren't committed are processed once more after the next start. The thread waits no longer than the limits below.
*Assumes*: driven by the thread that owns the tasks. No turn of the loop comes after it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from milestones.common.errors import MilestonesError, TimeoutExceededError
from milestones.common.kafka.failures import caught
from milestones.common.kafka.retry import RETRY_PAUSE_MS
from milestones.parts.transaction import CommitAction, CommitEvent

if TYPE_CHECKING:
    from milestones.instance.context import ThreadContext
    from milestones.parts import Processing, TaskFailurePolicy
    from milestones.stream_thread.commits.driver import CommitDriver
    from milestones.stream_thread.commits.recoveries import Recoveries
    from milestones.stream_thread.commits.transaction_register import TransactionRegister
    from milestones.stream_thread.tasks import ThreadTasks

log: Final = logging.getLogger(__name__)

LAST_FLUSH_MS, SHORT_MS = 10_000, 5
"""`LAST_FLUSH_MS`: the longest time for which the last commit waits until all caches are flushed. It is a third of
`close_timeout_ms` if that is less. `SHORT_MS`: the pause between two looks."""

LAST_COMMIT_MS = 10_000
"""How long the last commit is retried while it may still succeed (a third of `close_timeout_ms` if that is less)."""

MOST_TRIES = 5
"""How often the last commit is tried at most. It takes three tries to find out which record Kafka refuses."""

UNCONFIRMED = "Kafka hasn't confirmed it in time"


class LastCommit:
    """Makes one last commit of all work of the tasks.

    `collect_all`: sends the outputs of all tasks.
    """

    def __init__(
        self,
        context: ThreadContext,
        tasks: ThreadTasks,
        processing: Processing,
        ends: TaskFailurePolicy,
        commits: CommitDriver,
        recoveries: Recoveries,
        register: TransactionRegister,
        collect_all: Callable[[], object],
    ) -> None:
        self._context, self._clock, self._tasks = context, context.clock, tasks
        self._processing, self._ends = processing, ends
        self._commits, self._recoveries, self._collect_all = commits, recoveries, collect_all
        self._register = register

    def make(self) -> bool:
        """Make the last commit. Returns True if all is committed. Otherwise the log says why not."""
        third_ms = self._context.config.close_timeout_ms // 3
        try:
            self._make(min(LAST_FLUSH_MS, third_ms), min(LAST_COMMIT_MS, third_ms))
        except (KafkaException, MilestonesError) as error:
            log.error(
                "%s: the last commit failed: %s; nothing is lost, but what came since the commit before it is "
                "processed again after the next start", self._context.name, error,
            )  # fmt: skip
            return False
        return True

    def _make(self, patience_ms: int, most_ms: int) -> None:
        until_ms = self._clock.monotonic_ms() + most_ms
        self._recovered(lambda: self._finish_begun(until_ms), until_ms)
        if self._commits.pace.failing and self._clock.monotonic_ms() >= until_ms:
            raise TimeoutExceededError(UNCONFIRMED)
        self._rest(patience_ms)
        last_ms = self._clock.monotonic_ms() + min(most_ms, self._context.retry_policy.rest_ms())
        self._recovered(lambda: self.commit(last_ms), last_ms)
        while self._commits.pace.failing and self._clock.monotonic_ms() < last_ms:
            self._clock.sleep_ms(RETRY_PAUSE_MS)
            self.commit(last_ms)
        if self._commits.pace.failing:
            raise TimeoutExceededError(UNCONFIRMED)

    def commit(self, until_ms: float = math.inf) -> None:
        """Finish earlier commits, then commit all tasks together. From `until_ms` on no failed commit is repeated."""
        if self._finish_begun(until_ms):
            self._collect_all()
            self._commits.commit_now(self._clock.monotonic_ms())

    def _finish_begun(self, until_ms: float) -> bool:
        """Finish the recovery and the commit that are under way, and repeat earlier commits that failed, but begin none
        of them from `until_ms` on. Returns True if no earlier commit is left."""
        self._recoveries.finish()
        self._ends.stop_isolating()
        return self._commits.finish_earlier(self._clock.monotonic_ms(), until_ms)

    def _recovered(self, commit: Callable[[], object], until_ms: float) -> None:
        """Call `commit`. If it fails, recover from the error and try once more, as long as the register says so."""
        for _ in range(MOST_TRIES - 1):
            error = caught(commit, KafkaException, MilestonesError)
            if error is None:
                return
            once_more = self._register.answer(CommitEvent.LAST_COMMIT_FAILED) is CommitAction.TRY_ONCE_MORE
            if not once_more or self._clock.monotonic_ms() >= until_ms:
                raise error
            self._recoveries.recover(error, self._clock.monotonic_ms())
        commit()

    def _rest(self, patience_ms: int) -> None:
        """Stop processing all tasks, so that the last commit contains all of their work."""
        tasks = frozenset(self._tasks.processing)
        until_ms = self._clock.monotonic_ms() + patience_ms
        self._processing.hold_tasks(tasks)
        while True:
            prepared = self._processing.prepare_commit(self._clock.monotonic_ms(), patience_ms, final=True)
            if prepared and (self._processing.at_rest(tasks) or self._clock.monotonic_ms() >= until_ms):
                return
            self._clock.sleep_ms(SHORT_MS)
