"""The commit of the baseline: the stream thread takes all its steps in one call.

*Guarantees*: everything that `Committer` guarantees. Under `exactly_once_v2` a commit is one transaction. If Kafka
doesn't answer the end of a transaction in time, the thread loses its tasks.
*Assumes*: everything that `Committer` assumes.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException

from milestones.common.errors import TaskMigratedError
from milestones.common.kafka.failures import is_retriable
from milestones.common.steps import Steps, until_done
from milestones.shared_parts.committer import Committer
from milestones.shared_parts.in_transaction import CALL_MS, InTransaction, Offsets
from milestones.shared_parts.next_producer import ready_for_the_next


class WaitingCommitter(Committer):
    """Takes all steps of a commit in one call; the stream thread waits."""

    def run_once(self, wait_ms: int) -> Offsets | None:
        return until_done(super().run_once)


class Transaction(InTransaction):
    """The confirmation under `exactly_once_v2` (KIP-447): one transaction has the outputs, changelogs and offsets of
    all tasks. After its end the producer is made ready for the next one."""

    def hand_over(self, offsets: Offsets) -> Steps[None]:
        producer, metadata = self.clients.producer, self.clients.member.metadata()
        producer.begin()
        yield from self._retrying(
            lambda: producer.begin_send_offsets(offsets, metadata, self._call_ms), "send_offsets_to_transaction"
        )

    def end(self, offsets: Offsets) -> Steps[None]:
        yield from self._retrying(lambda: self.begin_end(self._call_ms), "commit_transaction")
        yield from ready_for_the_next(self.context, self.clients)

    @property
    def _call_ms(self) -> int:
        return min(CALL_MS, self.context.longest_wait_ms)

    def _retrying(self, begin: Callable[[], None], what: str) -> Steps[None]:
        """Retry the call. If its outcome stays unknown, raise `TaskMigratedError`: the thread gives its tasks up."""
        try:
            yield from self.context.retry_policy.steps(begin, self.clients.producer.returned, is_retriable)
        except KafkaException as exception:
            if is_retriable(exception):
                raise TaskMigratedError(
                    f"{what} had no answer in time (task_timeout_ms; less for a thread that is to stop): {exception}"
                ) from exception
            raise
