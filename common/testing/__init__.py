"""Public tools for tests of topologies and of applications: a driver that runs a topology without a broker, virtual
time, fault points, and a probe for a running Kafka."""

from milestones.common.testing.clock import StepClock
from milestones.common.testing.driver import TopologyTestDriver
from milestones.common.testing.kafka import KafkaProbe, KafkaRecord, TopicTail
from milestones.common.testing.topics import InputTopic, OutputTopic
from milestones.common.testing.waiting import DeadlineError, NotYet, until

__all__ = [
    "DeadlineError", "InputTopic", "KafkaProbe", "KafkaRecord", "NotYet", "OutputTopic", "StepClock", "TopicTail",
    "TopologyTestDriver", "until",
]  # fmt: skip
