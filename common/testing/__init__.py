"""Public: what tests of topologies need. A topology without a broker, virtual time, fault points."""

from milestones.common.testing.clock import StepClock
from milestones.common.testing.driver import TopologyTestDriver
from milestones.common.testing.topics import InputTopic, OutputTopic

__all__ = ["InputTopic", "OutputTopic", "StepClock", "TopologyTestDriver"]
