"""The run's place in the application's group.

*Guarantees*: only this run processes the tasks that the group gave to it. Spark tasks commit under the generation in
which the tasks were given. A task is given away only when no Spark task is processing it.
*Assumes*: one owner thread, which calls `run_once` often.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from milestones.common.assignment.model import SPARK, Assignment, Subscription
from milestones.common.clock import Clock
from milestones.common.config import StreamsConfig
from milestones.common.errors import ApplicationShutdownError, SourceTopicError
from milestones.common.kafka.admin import OwnAdmin
from milestones.common.kafka.leader import TopologyLeader
from milestones.common.kafka.membership import Assigned, Failed, GroupMember, JoinNeeded, LentMembership, Lost
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TaskId, TopicPartition
from milestones.instance.application import Application

log: Final = logging.getLogger(__name__)


class DriverMembership:
    """*Owns*: the member and its assignment. *Receives*: membership events.

    `tasks`: this run's tasks, with their input partitions. `lent`: the membership under which they are committed, or
    None between two generations. `wanted`: the reason why the member should join once more, by `join`. `busy`: the
    tasks that Spark is processing, set by the owner. `promised`: the tasks that this run will get when others have
    released them.
    """

    def __init__(
        self, config: StreamsConfig, application: Application, client_id: str, capacity: int, clock: Clock
    ) -> None:
        self._application, self._client_id, self._capacity = application, client_id, capacity
        admin = OwnAdmin(lambda: Cluster(config.admin_settings(f"{client_id}-leader")))
        leader = TopologyLeader(config, application.subtopologies, client_id, admin)
        self._tags = config.client_tags
        self._member = GroupMember(config.member_settings(client_id, SPARK), leader, clock)
        self._generation = -1
        self._releasing = False
        self.promised: frozenset[TaskId] = frozenset()
        self.busy: frozenset[TaskId] = frozenset()
        self.tasks: Mapping[TaskId, tuple[TopicPartition, ...]] = {}
        self.lent: LentMembership | None = None
        self.wanted: str | None = None
        self.generations: int = 0

    def start(self) -> None:
        self._member.start()

    def run_once(self) -> None:
        """Handle the events from the group. Raises a `MilestonesError` if the membership has failed for good."""
        for event in self._member.poll():
            match event:
                case JoinNeeded(reason):
                    self.wanted = reason
                case Assigned(generation, member_id, assignment):
                    self._assigned(generation, member_id, assignment)
                case Lost(reason):
                    log.warning("%s: membership lost (%s)", self._client_id, reason)
                    self.tasks, self.lent = {}, None
                case Failed(error):
                    raise error
        if self._releasing and not self.busy - self.tasks.keys():
            self._releasing = False
            self._member.request_rejoin("tasks were released to their new owners")

    def join(self) -> None:
        """Join the next generation with the run's present tasks. When it has begun, Spark tasks of the former
        generation can't commit any more.
        """
        log.info("%s: joins the group: %s", self._client_id, self.wanted)
        subscription = self._subscription(self.wanted or "")
        self.lent = self.wanted = None
        self._member.join(subscription)

    def ask_for_generation(self, reason: str) -> None:
        self._member.request_rejoin(reason)

    def _assigned(self, generation: int, member_id: str, assignment: Assignment) -> None:
        if assignment.error is not None:
            raise (ApplicationShutdownError if assignment.shutdown else SourceTopicError)(assignment.error)
        gone = (self.tasks.keys() | self.busy) - assignment.active
        self.tasks = {task: assignment.partitions[task] for task in sorted(assignment.active)}
        self.lent, self._generation = LentMembership(member_id, generation), generation
        self.promised = assignment.promised
        self.generations += 1
        log.info("%s: generation %d, %d tasks, %d given away", self._client_id, generation, len(self.tasks), len(gone))
        self._releasing = bool(gone)

    def _subscription(self, reason: str) -> Subscription:
        return Subscription(
            process_id=self._client_id,
            stage=SPARK,
            capacity=self._capacity,
            topics=self._application.source_topics,
            fingerprint=self._application.fingerprint,
            active=frozenset(self.tasks) | self.busy,
            promised=self.promised,
            generation=self._generation,
            client_tags=self._tags,
            reason=reason,
        )

    def close(self, *, leave: bool) -> None:
        """End the membership. With `leave` the member leaves the group; else the group notices by the session
        timeout."""
        self.lent = None
        self._member.close(leave=leave)
