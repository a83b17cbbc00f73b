"""The `Rules` that an assignor receives together with members and tasks, and the `Placement` that it returns.

*Guarantees*: frozen values.
*Assumes*: all members of a group have the same configuration. If not, the leader's configuration counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from milestones.common.assignment.model import Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.records import TaskId

Members = Mapping[str, Subscription]
"""All members of the group, by member id. Their `lags` are filled in as far as they are known."""

Tasks = Mapping[str, Set[TaskId]]
"""Tasks by member id. A member without tasks may be left out."""


@dataclass(frozen=True)
class Rules:
    """The configuration that an assignor sees. Keys and defaults are those of `StreamsConfig`.

    `acceptable_recovery_lag` is a number of records. `max_warmup_replicas` holds for the whole group,
    `num_standby_replicas` for each stateful task. `rack_aware_assignment_tags` are names of client tags (KIP-708).
    """

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """The members that should have each task as active, standby or warm-up, as if all tasks could move at once
    (KIP-924)."""

    active: Tasks
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


Assignor = Callable[[Members, TaskPlan, Rules], Placement]
"""A pure function that returns a placement. Every task is active on exactly one member. A process has at most one copy
of a task. Only stateful tasks have standbys and warm-ups."""
