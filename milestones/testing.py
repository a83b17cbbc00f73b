"""What tests need: a topology without a broker, on virtual time; a running Kafka to look into.

    from milestones.testing import KafkaProbe, TopologyTestDriver, until
"""

from __future__ import annotations

from milestones.common.clock import Clock
from milestones.common.public import publish
from milestones.common.testing import (
    DeadlineError,
    InputTopic,
    KafkaProbe,
    KafkaRecord,
    Not,
    OutputTopic,
    StepClock,
    TopicTail,
    TopologyTestDriver,
    until,
)
from milestones.common.testing.driver import HasTopology

__all__ = [
    "Clock", "DeadlineError", "HasTopology", "InputTopic", "KafkaProbe", "KafkaRecord", "Not", "OutputTopic",
    "StepClock", "TopicTail", "TopologyTestDriver", "until",
]  # fmt: skip

publish(__name__)
