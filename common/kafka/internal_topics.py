"""A topic that the application owns, and the settings that its topics are made with.

*Guarantees*: values only; nothing here asks Kafka.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

REPARTITION_SETTINGS = {
    "cleanup.policy": "delete",
    "segment.bytes": "52428800",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
"""Topic settings of a repartition topic, as Kafka Streams makes them: the runtime purges it, never its age. Nor its
size, for which brokers may have a default of their own."""

ANY_TIME: Final = {
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
}
"""Topic settings by which brokers take records of all times; by default those more than an hour ahead of their clock
are refused since Kafka 4. Brokers before 3.6 don't have them, and take all."""


@dataclass(frozen=True)
class InternalTopic:
    """A topic that the application owns."""

    name: str
    partitions: int
    settings: Mapping[str, str]
