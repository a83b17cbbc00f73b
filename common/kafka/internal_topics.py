"""`InternalTopic`: a topic that the application owns. The constants are the settings that such topics get.

*Guarantees*: this module holds values only. It doesn't ask Kafka.
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
"""Settings of a repartition topic, as in Kafka Streams. The runtime deletes the records that it has processed. Brokers
must not delete any by age or size, so both limits are set here: brokers may have other defaults."""

ANY_TIME: Final = {
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
}
"""Settings with which brokers accept records with any timestamp. Since Kafka 4 brokers refuse, by default, timestamps
more than an hour ahead of their clock. Brokers before 3.6 don't know these settings, and accept every timestamp."""


@dataclass(frozen=True)
class InternalTopic:
    """A topic that the application owns, with the settings that it must have."""

    name: str
    partitions: int
    settings: Mapping[str, str]
