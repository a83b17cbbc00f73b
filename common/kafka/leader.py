"""What the group's elected leader does: look at the topics, make the internal ones, find out lags, assign; say so in
one line of the log.

*Guarantees*: every member gets an assignment; a source topic that is missing is told to all of them, by its name. A
cluster that doesn't answer for a while makes the member join again, not fail; where changelogs end may stay unknown.
*Assumes*: runs on the membership thread of the elected member, which so becomes the owner of its admin client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
from confluent_kafka import KafkaException

from milestones.common.assignment.handover import assign
from milestones.common.assignment.lags import with_lags
from milestones.common.assignment.model import Assignment, Origin, Subscription, refused
from milestones.common.assignment.plan import plan_tasks
from milestones.common.assignment.rules import Rules
from milestones.common.assignment.summary import summary
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.changelogs import task_ends
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.kafka.topics import CHANGELOG_SETTINGS, REPARTITION_SETTINGS, Cluster, InternalTopic
from milestones.common.kafka.wire import ConnectionLostError

if TYPE_CHECKING:
    from milestones.common.assignment.plan import TaskPlan
    from milestones.common.assignment.rules import Assignor
    from milestones.common.config import StreamsConfig
    from milestones.common.topology.topology import SubTopology

log = logging.getLogger(__name__)

LAGS_TIMEOUT_MS = 5_000
FIRST_WITH_POSITIONS = 2
"""The first version of the user data in which a member says how far it has the state of which task."""
LINE = "rebalance:"
"""What the line about a rebalance begins with; JSON follows (docs/assignment.md, Observing)."""


class TopologyLeader:
    """Assigns the tasks of one topology. *Owns*: an admin client, made when it first leads."""

    def __init__(self, config: StreamsConfig, subtopologies: tuple[SubTopology, ...], client_id: str) -> None:
        self._config, self._subtopologies, self._client_id = config, subtopologies, client_id
        self._cluster: Cluster | None = None

    def assign(self, members: Mapping[str, Subscription], origin: Origin) -> Mapping[str, Assignment]:
        wishes = [subscription.shutdown for subscription in members.values() if subscription.shutdown is not None]
        if wishes:
            return {member: Assignment(error=wishes[0], shutdown=True) for member in members}
        try:
            given = self._assign(members, origin)
        except KafkaUnreachableError as error:
            raise ConnectionLostError(f"can't assign: {error}") from error
        except KafkaException as exception:
            kind = ConnectionLostError if is_passing(exception) else MilestonesError
            raise kind(
                f"the group's leader can't look at the topics: {error_of(exception)}; check this principal's rights"
            ) from exception
        blind = self._blind(members)
        return given if blind else {name: replace(assignment, origin=origin) for name, assignment in given.items()}

    def _assign(self, members: Mapping[str, Subscription], origin: Origin) -> Mapping[str, Assignment]:
        if self._cluster is None:
            self._cluster = Cluster(self._config.admin_settings(self._client_id))
        plan = plan_tasks(self._subtopologies, self._cluster.partition_counts())
        if plan.error is not None:
            log.error("no assignment: %s", plan.error)
            return {member: refused(plan.error, subscription) for member, subscription in members.items()}
        topics = internal_topics(self._config, self._subtopologies, plan)
        new = self._cluster.create(topics, self._config.replication_factor)
        group, timeout_ms = self._config.application_id, self._lags_timeout_ms()
        known = with_lags(members, task_ends(self._cluster, plan, group, new=new, timeout_ms=timeout_ms))
        rules = rules_of(self._config)
        given = assign(known, plan, rules, self._assignor(members))
        log.info("%s %s", LINE, orjson.dumps(summary(known, given, plan, rules, group, origin)).decode())
        return given

    def _lags_timeout_ms(self) -> int:
        """No heartbeat is sent meanwhile."""
        return min(LAGS_TIMEOUT_MS, self._config.session_timeout_ms // 4)

    def _assignor(self, members: Mapping[str, Subscription]) -> Assignor | str:
        """The configured one. Members of version 1 say no positions, so that no warm-up of theirs would ever end."""
        configured: Assignor | str = self._config.task_assignor
        return "sticky" if self._blind(members) and isinstance(configured, str) else configured

    @staticmethod
    def _blind(members: Mapping[str, Subscription]) -> bool:
        return any(member.version < FIRST_WITH_POSITIONS for member in members.values())


def rules_of(config: StreamsConfig) -> Rules:
    """What an assignor sees of the configuration."""
    return Rules(
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        max_warmup_replicas=config.max_warmup_replicas,
        num_standby_replicas=config.num_standby_replicas,
        rack_aware_assignment_tags=config.rack_aware_assignment_tags,
    )


def internal_topics(
    config: StreamsConfig, subtopologies: tuple[SubTopology, ...], plan: TaskPlan
) -> list[InternalTopic]:
    """The repartition and changelog topics that the plan needs, with their settings."""
    specs = {topic: spec for sub in subtopologies for spec in sub.stores if (topic := sub.changelogs.get(spec.name))}
    repartition = [
        InternalTopic(topic, count, {**REPARTITION_SETTINGS, **config.topic_settings()})
        for topic, count in plan.repartition_counts.items()
    ]
    changelogs = [
        InternalTopic(
            topic, count, {**CHANGELOG_SETTINGS, **config.topic_settings(), **specs[topic].changelog_config}
        )
        for topic, count in plan.changelog_counts.items()
    ]
    return repartition + changelogs
