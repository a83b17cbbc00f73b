"""`ChangelogEnds`: asks Kafka for the end offsets of changelogs after a flush of a producer without transactions.

*Guarantees*: each end offset was asked for after the flush. A partition is asked for until Kafka reports its end.
*Assumes*: the thread that owns the producer owns this object.
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
    """The end offsets that a producer waits for. `wanted`: the changelog partitions that were written since the last
    question. *Owns*: the open question. *Sends*: questions to the owner of the admin client."""

    def __init__(self, admin: Admin | None) -> None:
        self._admin = admin
        self.wanted: set[TopicPartition] = set()
        self._asked: set[TopicPartition] = set()
        self._answers: Answers[TopicPartition, ListOffsetsResultInfo] | None = None

    def ask(self, timeout_ms: int) -> bool:
        """Ask Kafka for the end offsets of all partitions whose ends aren't known yet. Returns False if there are no
        such partitions."""
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
        """Wait at most `wait_ms` for the answer to the last question. Returns the end offsets, or None without an
        answer. Raises `KafkaException` if Kafka refuses. An error that may pass is raised as a time-out, so that the
        caller repeats the flush."""
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
    """Returns the error for end offsets that no broker has reported. It counts as passing: the flush is repeated."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the ends of changelogs aren't known yet: {why}"))
