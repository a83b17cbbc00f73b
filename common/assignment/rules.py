"""The `Rules` that an assignor gets besides members and tasks, and its answer, the `Placement`.

*Guarantees*: frozen values.
*Assumes*: every member of a group is configured alike; if not, the leader's configuration counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from milestones.common.assignment.model import Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.records import TaskId

Members = Mapping[str, Subscription]
"""All members of the group by their member id. `lags` are filled in, as far as they can be known."""

Tasks = Mapping[str, Set[TaskId]]
"""Tasks by member id; a member that has none may be left out."""


@dataclass(frozen=True)
class Rules:
    """The configuration that an assignor sees; keys and defaults are those of `StreamsConfig`.

    `acceptable_recovery_lag` in records; `max_warmup_replicas` for the whole group; `num_standby_replicas` for each
    stateful task; `rack_aware_assignment_tags`: names of client tags (KIP-708).
    """

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """Which member shall have which task, and as what, as if all could move at once (KIP-924)."""

    active: Tasks
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


Assignor = Callable[[Members, TaskPlan, Rules], Placement]
"""A pure function. Every task is active on one member; at most one copy of a task is on a process; only stateful tasks
have standbys and warm-ups."""
