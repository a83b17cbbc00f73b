"""`TopologyLeader`: the work of the group's elected leader. It looks at the topics, creates internal topics, finds the
members' lags, assigns the tasks, and writes one log line about the rebalance.

*Guarantees*: every member gets an assignment. If a source topic is missing, every member gets an error that names the
topic. If the cluster doesn't answer for a while, the member joins the group once more instead of failing. Tasks with
unknown end offsets of changelogs are assigned all the same.
*Assumes*: runs in the thread of the elected member.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import orjson
from confluent_kafka import KafkaException

from milestones.common.assignment.handover import assign
from milestones.common.assignment.lags import with_lags
from milestones.common.assignment.model import Assignment, AssignmentOrigin, Subscription, refused
from milestones.common.assignment.plan import internal_names, plan_tasks
from milestones.common.assignment.rules import Rules
from milestones.common.assignment.summary import summary
from milestones.common.clock import Clock, SystemClock
from milestones.common.errors import KafkaUnreachableError, MilestonesError
from milestones.common.kafka.admin import answered, by_another_client, rest
from milestones.common.kafka.answers import described_in
from milestones.common.kafka.changelogs import task_ends
from milestones.common.kafka.clients import text_of
from milestones.common.kafka.creation import TopicCreation
from milestones.common.kafka.failures import error_of, is_passing
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.internal_topics import ANY_TIME, REPARTITION_SETTINGS, InternalTopic
from milestones.common.kafka.other_topics import begins_empty, others_of
from milestones.common.kafka.topics import ALL
from milestones.common.kafka.wire import ConnectionLostError
from milestones.common.patterns import matching
from milestones.common.state.stores.kinds import changelog_settings

if TYPE_CHECKING:
    from milestones.common.assignment.plan import TaskPlan
    from milestones.common.assignment.rules import Assignor
    from milestones.common.config import StreamsConfig
    from milestones.common.kafka.admin import Admin, Begin
    from milestones.common.kafka.membership.events import Assigning
    from milestones.common.records import TopicPartition
    from milestones.common.topology.topology import SubTopology

log: Final = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

LOOK_TIMEOUT_MS, REQUEST_TIMEOUT_MS = 2_000, 10_000
"""The time-out of the first question about topics, and the longest time-out of any request. The time-out doubles after
each failure: it is short at first because the broker may hang, and long later because the cluster may be large."""
PATIENCE_MS = 60_000
"""The time for which questions about topics are repeated. The group waits for this member meanwhile."""
LOOK_AGAIN_MS = 500
"""The pause before a question about topics is repeated that got no answer."""
SECOND_LOOK_MS = 3_000
"""The pause before topics are looked at a second time because some seem to be missing."""
FIRST_WITH_POSITIONS = 2
"""The first version of the user data in which a member reports the positions of its tasks."""
LINE = "rebalance:"
"""The beginning of the log line about a rebalance. JSON follows it (docs/assignment.md, Observing)."""


class TopologyLeader:
    """Assigns the tasks of one topology. *Sends*: requests about topics to the owner of the admin client."""

    def __init__(
        self,
        config: StreamsConfig,
        subtopologies: tuple[SubTopology, ...],
        name: str,
        admin: Admin,
        clock: Clock | None = None,
    ) -> None:
        """`name`: the name of the thread whose member this is."""
        self._config, self._subtopologies, self._name, self._admin = config, subtopologies, name, admin
        self._clock = clock or SystemClock()
        self._seen: frozenset[str] = frozenset()

    def assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        wishes = [subscription.shutdown for subscription in members.values() if subscription.shutdown is not None]
        if wishes:
            return {member: Assignment(error=wishes[0], shutdown=True) for member in members}
        try:
            given = yield from self._assign(members, origin)
        except KafkaUnreachableError as error:
            raise ConnectionLostError(f"can't assign: {error}") from error
        except KafkaException as exception:
            kind = ConnectionLostError if is_passing(exception) else MilestonesError
            raise kind(
                f"the group's leader can't look at the topics: {error_of(exception)}; check this principal's rights"
            ) from exception
        blind = self._blind(members)
        return given if blind else {name: replace(assignment, origin=origin) for name, assignment in given.items()}

    def _assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        """1. Look at the input topics. 2. Create internal topics. 3. Find the members' lags. 4. Assign the tasks."""
        plan = yield from self._plan(members)
        if plan.error is not None:
            log.error("no assignment: %s", plan.error)
            return {member: refused(plan.error, subscription) for member, subscription in members.items()}
        own = internal_topics(self._config, self._subtopologies, plan)
        new = yield from self._make_topics(own)
        if new:
            yield from self._tell_of_others(new, {topic.name for topic in own})
        known = with_lags(members, (yield from task_ends(self._admin, self._committed, plan, self._clock, new=new)))
        yield
        rules, group = rules_of(self._config), self._config.application_id
        given = assign(known, plan, rules, self._assignor(members))
        log.info("%s %s", LINE, orjson.dumps(summary(known, given, plan, rules, group, origin)).decode())
        return given

    def _plan(self, members: Mapping[str, Subscription]) -> Generator[None, None, TaskPlan]:
        """Plan the tasks from the partition counts of the input topics.

        A broker that has just started may not know all topics yet. So if the plan has an error, or lacks topics or
        tasks that existed before, the topics are looked at a second time, with a new client. The second plan counts."""
        counts = yield from self._counts()
        plan = plan_tasks(self._subtopologies, counts)
        running = {task for member in members.values() for task in member.active}
        known = self._seen | self._matched(members)
        if plan.error is not None or known - counts.keys() or running - plan.tasks.keys():
            log.info("the input topics are looked at once more: %s", plan.error or "some are missing")
            yield from rest(self._clock, SECOND_LOOK_MS)
            counts = yield from self._counts(again=True)
            plan = plan_tasks(self._subtopologies, counts)
        self._seen = frozenset(topic for inputs in plan.tasks.values() for topic, _ in inputs) & counts.keys()
        return plan

    def _matched(self, members: Mapping[str, Subscription]) -> frozenset[str]:
        """Returns the topics that members have found with the patterns of the topology. A new topic may be the reason
        for which a member has asked for this rebalance."""
        named = {topic for member in members.values() for topic in member.topics}
        others = named - internal_names(self._subtopologies)
        return frozenset(matching((p for sub in self._subtopologies for p in sub.source_patterns), others))

    def _counts(self, *, again: bool = False) -> Generator[None, None, dict[str, int]]:
        """Ask for the partition counts of the input topics until there is an answer. `again`: ask with a new client."""
        until_ms, timeout_ms = self._clock.monotonic_ms() + self._patience_ms(), LOOK_TIMEOUT_MS
        while True:
            try:
                return (yield from self._look(timeout_ms, again=again))
            except KafkaException as error:
                if not is_passing(error) or self._clock.monotonic_ms() > until_ms:
                    raise
                log.info("no answer about the input topics yet, asking once more: %s", text_of(error))
            again, timeout_ms = True, min(2 * timeout_ms, REQUEST_TIMEOUT_MS)
            yield from rest(self._clock, LOOK_AGAIN_MS)

    def _patience_ms(self) -> int:
        return min(PATIENCE_MS, self._config.max_poll_interval_ms // 2)

    def _look(self, timeout_ms: int, *, again: bool) -> Generator[None, None, dict[str, int]]:
        """Ask once for partition counts. If the topology has topic patterns, ask for all topics of the cluster, else
        for the named source topics only."""
        if any(sub.source_patterns for sub in self._subtopologies):
            counts = yield from self._ask(lambda cluster: cluster.start_counting_all(timeout_ms), again=again)
            return counts[ALL].result()
        named = {topic for sub in self._subtopologies for topic in sub.source_topics}
        named -= {topic for sub in self._subtopologies for topic in sub.repartition_topics}
        answers = yield from self._ask(lambda cluster: cluster.start_describing(named, timeout_ms), again=again)
        return {topic: told.partitions for topic, told in described_in(answers).items()}

    def _ask(self, begin: Begin[K, V], *, again: bool) -> Generator[None, None, Mapping[K, Future[V]]]:
        return answered(self._admin.ask(by_another_client(begin) if again else begin), self._clock)

    def _make_topics(self, topics: list[InternalTopic]) -> Generator[None, None, frozenset[str]]:
        """Create the missing topics, and return their names."""
        replicas = self._config.replication_factor
        creation = TopicCreation(self._admin, topics, replicas, self._patience_ms(), self._clock)
        yield from creation.steps()
        return creation.made

    def _tell_of_others(self, made: Collection[str], own: Collection[str]) -> Generator[None, None, None]:
        """Warn if topics were created although the application has other internal topics, which no operator reads."""
        try:
            answers = yield from self._ask(lambda cluster: cluster.start_counting_all(LOOK_TIMEOUT_MS), again=False)
            there = answers[ALL].result()
        except KafkaException as error:
            log.info("can't look for other internal topics: %s", text_of(error))
            return
        if others := others_of(self._config.application_id, there, own):
            log.warning("%s", begins_empty(made, others))

    def _committed(self, inputs: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ask the coordinator for the group's committed offsets of these partitions."""
        config, timeout_ms = self._config, self._step_ms(REQUEST_TIMEOUT_MS)
        settings = config.consumer_settings(self._name)
        with closing(GroupReader(settings, config.application_id, timeout_ms=timeout_ms)) as reader:
            return reader.committed(inputs)

    def _step_ms(self, most_ms: int) -> int:
        """Returns the longest time that one step may wait for Kafka. No heartbeat is sent during a step."""
        return min(most_ms, self._config.session_timeout_ms // 4)

    def _assignor(self, members: Mapping[str, Subscription]) -> Assignor | str:
        """Returns the configured assignor. If it is one of the assignors with a name, and a member's
        subscription has version 1, returns `sticky`: such a subscription reports no positions, so the member's warm-up
        tasks would never count as caught up."""
        configured: Assignor | str = self._config.task_assignor
        return "sticky" if self._blind(members) and isinstance(configured, str) else configured

    @staticmethod
    def _blind(members: Mapping[str, Subscription]) -> bool:
        return any(member.version < FIRST_WITH_POSITIONS for member in members.values())


def rules_of(config: StreamsConfig) -> Rules:
    """Returns the part of the configuration that an assignor gets."""
    return Rules(
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        max_warmup_replicas=config.max_warmup_replicas,
        num_standby_replicas=config.num_standby_replicas,
        rack_aware_assignment_tags=config.rack_aware_assignment_tags,
    )


def internal_topics(
    config: StreamsConfig, subtopologies: tuple[SubTopology, ...], plan: TaskPlan
) -> list[InternalTopic]:
    """Returns the repartition and changelog topics that the plan needs, with their settings."""
    settings = {**ANY_TIME, **config.topic_settings()}
    specs = {topic: spec for sub in subtopologies for spec in sub.stores if (topic := sub.changelogs.get(spec.name))}
    repartition = [
        InternalTopic(topic, count, {**REPARTITION_SETTINGS, **settings})
        for topic, count in plan.repartition_counts.items()
    ]
    changelogs = [
        InternalTopic(topic, count, changelog_settings(specs[topic], settings))
        for topic, count in plan.changelog_counts.items()
    ]
    return repartition + changelogs
