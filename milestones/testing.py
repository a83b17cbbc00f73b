"""What tests of topologies need: a topology without a broker, on virtual time.

    from milestones.testing import TopologyTestDriver
"""

from __future__ import annotations

from milestones.common.clock import Clock
from milestones.common.public import publish
from milestones.common.testing import InputTopic, OutputTopic, StepClock, TopologyTestDriver
from milestones.common.testing.driver import HasTopology

__all__ = ["Clock", "HasTopology", "InputTopic", "OutputTopic", "StepClock", "TopologyTestDriver"]

publish(__name__)
