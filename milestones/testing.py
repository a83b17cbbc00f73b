"""What tests of topologies need: a topology without a broker, on virtual time.

    from milestones.testing import TopologyTestDriver
"""

from __future__ import annotations

from milestones.common.testing import InputTopic, OutputTopic, StepClock, TopologyTestDriver

__all__ = ["InputTopic", "OutputTopic", "StepClock", "TopologyTestDriver"]
