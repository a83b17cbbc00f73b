"""A Kafka broker for tests and first steps. The extra `embedded` installs all that the broker needs, including Java.

    from milestones.embedded import EmbeddedKafka
"""

from __future__ import annotations

from milestones.common.kafka.embedded import (
    KAFKA_VERSION,
    BrokerDiedError,
    DataDirInUseError,
    EmbeddedKafka,
    EmbeddedKafkaError,
    JarsError,
    JavaNotFoundError,
    PortTakenError,
)
from milestones.common.public import publish

__all__ = [
    "KAFKA_VERSION", "BrokerDiedError", "DataDirInUseError", "EmbeddedKafka", "EmbeddedKafkaError", "JarsError",
    "JavaNotFoundError", "PortTakenError",
]  # fmt: skip

publish(__name__)
