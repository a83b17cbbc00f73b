"""What tests of producers find in their topics."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position


def read(kafka: str, topics: Iterable[str]) -> dict[str, list[bytes | None]]:
    """By topic, the committed values in its first partition."""
    found: dict[str, list[bytes | None]] = {topic: [] for topic in topics}
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([Position(topic, 0, 0) for topic in found])
    unread = len(found)
    while unread:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            unread -= 1
        else:
            found[message.topic() or ""].append(message.value())
    consumer.close()
    return found
