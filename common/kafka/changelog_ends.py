"""`ChangelogEnds`: where changelogs end after a flush of a producer without transactions.

*Guarantees*: an end is that of a question which was asked after the flush. A partition is asked for until its end is
told.
*Assumes*: one owner thread, that of the producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import wait
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import OwnershipError
from milestones.common.kafka.answers import told
from milestones.common.kafka.failures import is_passing

if TYPE_CHECKING:
    from confluent_kafka.admin import ListOffsetsResultInfo  # type: ignore[attr-defined]

    from milestones.common.kafka.admin import Admin, Answers
    from milestones.common.records import TopicPartition


class ChangelogEnds:
    """`wanted`: the changelog partitions that were written since the last question. *Owns*: the question under way.
    *Sends*: questions to the owner of the admin client."""

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin
        self.wanted: set[TopicPartition] = set()
        self._asked: set[TopicPartition] = set()
        self._answers: Answers[TopicPartition, ListOffsetsResultInfo] | None = None

    def ask(self, timeout_ms: int) -> bool:
        """Ask for the ends of all partitions whose ends aren't known; False when there are none."""
        self._asked |= self.wanted
        self.wanted.clear()
        if not self._asked:
            return False
        if self._admin is None:
            raise OwnershipError("a producer without transactions has no way to an admin client: this is a bug")
        asked = frozenset(self._asked)
        self._answers = self._admin.ask(lambda cluster: cluster.start_listing(asked, end=True, timeout_ms=timeout_ms))
        return True

    def told(self, wait_ms: int) -> Mapping[TopicPartition, int] | None:
        """The ends, by the last question; None when Kafka hasn't answered within `wait_ms`. `KafkaException`: of Kafka;
        one that may pass says that it timed out, so that all is flushed again."""
        answers = self._answers
        if answers is None or wait([answers], max(wait_ms, 0) / 1000).not_done:
            return None
        self._answers = None
        try:
            ends = {at: told(at, future) for at, future in answers.result().items()}
        except KafkaException as exception:
            if not is_passing(exception):
                raise
            raise unknown(exception) from exception
        self._asked.clear()
        return ends

    def clear(self) -> None:
        """Forget all partitions."""
        self.wanted.clear()
        self._asked.clear()
        self._answers = None


def unknown(why: object) -> KafkaException:
    """The passing error when a broker gave no ends."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the ends of changelogs aren't known yet: {why}"))
