"""Kafka as the suite sees it: what `KafkaProbe` says, groups, and what coordinators write down.

*Guarantees*: as `KafkaProbe`.
*Assumes*: one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from compat_tests.oracles.placement import java_hash
from compat_tests.oracles.rows import Place, Row
from milestones.common.kafka.clients import GIVEN_UP_S
from milestones.common.kafka.groups import GroupReader
from milestones.testing import KafkaProbe, TopicTail

CALL_S = 15.0
"""How long one call may take."""
OF_A_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
ACLS: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker that knows rights: anybody has all of them where none are given."""
ANYBODY = ("User:*", "*")
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"


class TopicDetails(NamedTuple):
    """A topic's id, which a topic that is made anew doesn't keep, and the settings that are its own."""

    id: str
    partitions: int
    settings: Mapping[str, str]


class Cluster(KafkaProbe):
    """A running Kafka, with what only the suite asks and does."""

    def set_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """Change settings of a topic. Not how many replicas are to be in sync: one broker never finds too few, as Kafka
        asks for no more than there are; `KafkaProxy.refuse` has a topic refuse writes."""
        assert "min.insync.replicas" not in config
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource], request_timeout=CALL_S)[resource].result(CALL_S)

    def forbid(self, topic: str, operation: AclOperation) -> None:
        """Take a right to a topic away from everybody, the suite too, on a broker with `ACLS`."""
        rights = {AclOperation.ALL: AclPermissionType.ALLOW, operation: AclPermissionType.DENY}
        bindings = [
            AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *ANYBODY, right, permission)
            for right, permission in rights.items()
        ]
        for future in self.admin.create_acls(bindings, request_timeout=CALL_S).values():
            future.result(CALL_S)

    def permit(self, topic: str) -> None:
        """Give back all that `forbid` has taken."""
        given = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *ANYBODY)
        every = AclBindingFilter(*given, AclOperation.ANY, AclPermissionType.ANY)
        for future in self.admin.delete_acls([every], request_timeout=CALL_S).values():
            future.result(CALL_S)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)], request_timeout=CALL_S)[topic].result(CALL_S)
        self.await_known({topic: partitions})

    def truncate(self, before: Mapping[Place, int]) -> None:
        """Delete all records before these offsets. Kafka refuses it for a topic that is only compacted."""
        asked = [TopicPartition(*place, offset) for place, offset in before.items()]
        for future in self.admin.delete_records(asked, request_timeout=CALL_S).values():
            future.result(CALL_S)

    def delete(self, topics: Collection[str]) -> None:
        """Delete topics; those that don't exist are passed over."""
        for future in self.admin.delete_topics(list(topics), request_timeout=CALL_S).values() if topics else ():
            with suppress(KafkaException):
                future.result(CALL_S)

    def open_transactions(self, topics: Iterable[str]) -> dict[Place, tuple[int, int]]:
        """Where the last stable offset lies before the end: (last stable offset, end)."""
        places = self.places(topics)
        ends, stable = self.ends(places), self.ends(places, stable=True)
        return {place: (stable[place], ends[place]) for place in places if stable[place] < ends[place]}

    def members(self, group: str) -> dict[str, frozenset[Place]]:
        """The group's members as it is now, by client id, with their partitions; none while it rebalances, or while
        one that is dead is still in it beside its successor."""
        described = self._described(group)
        ids = {member.client_id for member in described.members}
        if described.state.name != "STABLE" or len(ids) < len(described.members):
            return {}
        return {
            member.client_id: frozenset(
                Place(at.topic, at.partition) for at in member.assignment.topic_partitions if member.assignment
            )
            for member in described.members
        }

    def group_state(self, group: str) -> str:
        """The group's state by Kafka's name, such as STABLE, EMPTY (without members) or DEAD (there is none)."""
        return str(self._described(group).state.name)

    def _described(self, group: str) -> Any:
        def told(admin: AdminClient) -> Any:
            (future,) = admin.describe_consumer_groups([group], request_timeout=GIVEN_UP_S).values()
            return future.result(CALL_S)

        return self._ask(told)

    def topic_details(self, prefix: str) -> dict[str, TopicDetails]:
        """The topics whose names begin like this, as they are."""
        counts = {name: count for name, count in self.topics().items() if name.startswith(prefix)}
        if not counts:
            return {}
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in counts]
        ids = self._ask(lambda admin: _results(admin.describe_topics(TopicCollection([*counts]))))
        settings = self._ask(lambda admin: _results(admin.describe_configs(asked, request_timeout=CALL_S)))
        own = {
            resource.name: {name: str(entry.value) for name, entry in entries.items() if entry.source == OF_A_TOPIC}
            for resource, entries in settings.items()
        }
        return {name: TopicDetails(str(ids[name].topic_id), count, own[name]) for name, count in counts.items()}

    def committed_now(self, group: str, places: Collection[Place], *, stable: bool = False) -> dict[Place, int]:
        """A group's committed offsets; what a pending transaction has isn't among them, and is waited for if they are
        to be `stable`."""
        with self._reader(group) as reader:
            if not stable:
                return reader.committed(places)
            return {place: at.offset for place, at in reader.stable(places).items()}

    def committed_metadata(self, group: str, places: Collection[Place]) -> dict[Place, str]:
        """What a group's committed offsets carry, once no transaction is pending on them. librdkafka's Python client
        would read beyond their end."""
        with self._reader(group) as reader:
            return {place: at.metadata for place, at in reader.stable(places).items()}

    def _reader(self, group: str) -> closing[GroupReader]:
        settings = {"bootstrap.servers": self.bootstrap_servers}
        return closing(GroupReader(settings, group, timeout_ms=int(CALL_S * 1_000)))

    def group_place(self, group: str) -> Place | None:
        """Where the broker writes down all about a group; None before its first group."""
        offsets = self._ask(lambda admin: admin.list_topics(timeout=CALL_S).topics.get(OFFSETS_TOPIC))
        if offsets is None or not offsets.partitions:
            return None
        return Place(OFFSETS_TOPIC, java_hash(group) % len(offsets.partitions))  # those without a leader count too

    def group_end(self, group: str) -> int:
        """Where ends what the broker wrote down about a group; 0 before the first group."""
        place = self.group_place(group)
        return 0 if place is None else self.ends([place])[place]

    def group_rows(self, group: str, since: int = 0) -> list[Row]:
        """What the broker wrote down about a group (see `oracles.group.history`), `since` this end."""
        place = self.group_place(group)
        return self._rows({} if place is None else {place: since})

    def transaction_ends(self) -> dict[Place, int]:
        """Where the transaction coordinators' log ends now; nothing before the first transaction."""
        if TRANSACTIONS_TOPIC not in self.topics():
            return {}
        return self.ends(self.places([TRANSACTIONS_TOPIC]))

    def transaction_rows(self, since: Mapping[Place, int]) -> list[Row]:
        """What the transaction coordinators wrote down (see `oracles.transactions`), `since` these ends."""
        return self._rows({place: since.get(place, 0) for place in self.transaction_ends()})

    def _rows(self, starts: Mapping[Place, int]) -> list[Row]:
        """What lies in these partitions from these offsets on."""
        if not starts:
            return []
        with TopicTail(self, starts, from_offsets=starts) as tail:
            tail.to_the_end()
            return sorted(tail.rows, key=lambda row: (row.partition, row.offset))


def _results(futures: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: future.result(CALL_S) for key, future in futures.items()}
