"""`PartitionCounts`: the partition counts of topics, for threads that have no client.

*Guarantees*: any thread may ask; each topic is asked for once, and again after an error.
*Assumes*: partition counts don't change under a running application, as its leader watches them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from milestones.common.kafka.clients import client_log


class PartitionCounts:
    """*Concurrency*: a thread holds the lock while it asks Kafka, so that other threads wait for the answer."""

    def __init__(self, settings: Mapping[str, Any], timeout_ms: int) -> None:
        self._settings, self._timeout = dict(settings), timeout_ms / 1000
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._counts: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """The number of partitions of a topic; `KafkaException` when there is no such topic, or no answer in time."""
        known = self._counts.get(topic)
        if known is not None:
            return known
        with self._lock:
            if topic not in self._counts:
                self._counts[topic] = self._ask(topic)
            return self._counts[topic]

    def _ask(self, topic: str) -> int:
        if self._admin is None:
            self._admin = AdminClient(self._settings, logger=client_log)
        metadata = self._admin.list_topics(topic, timeout=self._timeout).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return len(metadata.partitions)
