"""A Kafka broker that is installed with pip: `with EmbeddedKafka() as kafka: kafka.bootstrap_servers`.

*Guarantees*: see `broker.py`.
*Assumes*: the extra `embedded` is installed. The network is needed once, to download Kafka's jars.
"""

from __future__ import annotations

from milestones.common.kafka.embedded.broker import EmbeddedKafka
from milestones.common.kafka.embedded.command import run_broker
from milestones.common.kafka.embedded.errors import (
    BrokerDiedError,
    DataDirInUseError,
    EmbeddedKafkaError,
    JarsError,
    JavaNotFoundError,
    PortTakenError,
)
from milestones.common.kafka.embedded.jars import KAFKA_VERSION, kafka_jars

__all__ = [
    "KAFKA_VERSION",
    "BrokerDiedError",
    "DataDirInUseError",
    "EmbeddedKafka",
    "EmbeddedKafkaError",
    "JarsError",
    "JavaNotFoundError",
    "PortTakenError",
    "kafka_jars",
    "run_broker",
]
