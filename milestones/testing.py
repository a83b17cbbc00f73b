"""Tools for tests: a topology without a broker, on virtual time; an instance whose turns, faults and crashes the test
makes; access to the content of a running Kafka; the points at which a process can be made to fail.

    from milestones.testing import KafkaProbe, TopologyTestDriver, until
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from milestones.common.clock import Clock
from milestones.common.public import publish, renamed
from milestones.common.task.task_context import TaskSettings
from milestones.common.testing import (
    DeadlineError,
    InputTopic,
    KafkaProbe,
    KafkaRecord,
    NotYet,
    OutputTopic,
    StepClock,
    TopicTail,
    TopologyTestDriver,
    until,
)
from milestones.common.testing.driver import HasTopology
from milestones.common.testing.faults import POINTS as FAULT_POINTS
from milestones.flags import parse_milestones
from milestones.stepped.application import SteppedApplication

_TASKS: Mapping[str, Callable[[TaskSettings], TaskSettings]] = {"committed_collector": TaskSettings.with_thin_logs}
"""For each flag that changes the settings of tasks, the function that changes them. The flag's part `state` in
`wiring.py` makes the same change."""


def _of_stage(stage: Any, settings: TaskSettings) -> TaskSettings:
    for flag in parse_milestones(stage) & _TASKS.keys():
        settings = _TASKS[flag](settings)
    return settings


TopologyTestDriver.of_stage = staticmethod(_of_stage)  # type: ignore[assignment]

__all__ = [
    "FAULT_POINTS", "Clock", "DeadlineError", "HasTopology", "InputTopic", "KafkaProbe", "KafkaRecord", "NotYet",
    "OutputTopic", "StepClock", "SteppedApplication", "TopicTail", "TopologyTestDriver", "until",
]  # fmt: skip

publish(__name__)

if TYPE_CHECKING:
    Not = NotYet
else:
    __getattr__ = renamed(__name__, {"Not": "NotYet"})
