"""`PartitionCounts`: looks up partition counts of topics, for threads that have no client.

*Guarantees*: any thread may ask. Kafka is asked for a topic until it has answered once without an error.
*Assumes*: partition counts don't change while the application runs. The group's leader checks this.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait

from confluent_kafka import KafkaError, KafkaException

from milestones.common.kafka.admin import Admin


class PartitionCounts:
    """Partition counts by topic. *Concurrency*: a thread holds the lock while it waits for Kafka's answer. Other
    threads wait for the same answer."""

    def __init__(self, admin: Admin, timeout_ms: int) -> None:
        self._admin, self._timeout_ms = admin, timeout_ms
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Raises `KafkaException` if the topic doesn't exist, or if no
        answer comes in time."""
        known = self._counts.get(topic)
        if known is not None:
            return known
        with self._lock:
            if topic not in self._counts:
                self._counts[topic] = self._ask(topic)
            return self._counts[topic]

    def _ask(self, topic: str) -> int:
        answers = self._admin.ask(lambda cluster: cluster.start_describing([topic], self._timeout_ms))
        if wait([answers], self._timeout_ms / 1000).not_done:
            answers.cancel()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {self._timeout_ms} ms"))
        return len(answers.result()[topic].result().partitions)
