from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from milestones.common.assignment.handover import assign
from milestones.common.assignment.model import AssignmentOrigin, Subscription
from milestones.common.assignment.plan import TaskPlan
from milestones.common.clock import SystemClock
from milestones.common.errors import KafkaUnreachableError, MembershipError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.membership import (
    Assigned,
    Failed,
    GroupMember,
    JoinNeeded,
    Lost,
    MemberSettings,
    StaleGenerationError,
)
from milestones.common.kafka.membership.events import Assigning
from milestones.common.kafka.topics import Cluster
from milestones.common.records import OffsetAndMetadata, TaskId, TopicPartition
from tests.common.kafka.tls import certified
from tests.topics import new_topic

pytestmark = pytest.mark.kafka

FAST: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200, "max_poll_interval_ms": 20_000}
WAIT_S = 40


class PlanLeader:
    def __init__(self, topic: str) -> None:
        tasks = {TaskId(0, p): (TopicPartition(topic, p),) for p in range(4)}
        self.plan = TaskPlan(tasks, {}, {}, {}, frozenset(), (), "f")
        self.versions: set[int] = set()

    def assign(self, members: Mapping[str, Subscription], origin: AssignmentOrigin) -> Assigning:
        self.versions = {member.version for member in members.values()}
        yield
        return assign(members, self.plan)


class Owner:
    """Does with its member what a stream thread does."""

    def __init__(self, client: dict[str, object], group: str, name: str, capacity: int = 1, **settings: Any) -> None:
        self.topic = group
        self.me = Subscription(process_id=name, stage="baseline", capacity=capacity, topics=(group,), fingerprint="f")
        self.active: frozenset[TaskId] = frozenset()
        self.events: list[Any] = []
        self.generation = -1
        member_settings = MemberSettings(group_id=group, client=client | {"client.id": name}, **{**FAST, **settings})
        self.leader = PlanLeader(group)
        self.member = GroupMember(member_settings, self.leader, SystemClock())
        self.member.start()

    def step(self) -> None:
        for event in self.member.poll():
            self.events.append(event)
            match event:
                case JoinNeeded():
                    self.member.join(replace(self.me, active=self.active))
                case Assigned(generation, _, assignment):
                    released = self.active - assignment.active
                    self.active, self.generation = assignment.active, generation
                    if released:
                        self.member.request_rejoin("released")
                case Lost():
                    self.active = frozenset()

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def seen_versions(self) -> set[int]:
        """Versions of the members' user data, when this member last was the leader."""
        return self.leader.versions

    def commit(self, offset: int) -> None:
        tp = TopicPartition(self.topic, min(self.active).partition)
        self.member.commit_offsets({tp: OffsetAndMetadata(offset, "note")}, WAIT_S * 1000)


def drive(done: Callable[[], bool], *owners: Owner) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, [(o.me.process_id, o.active, o.kinds()) for o in owners]
        for owner in owners:
            owner.step()
        time.sleep(0.005)


def is_stable(owner: Owner) -> bool:
    """It isn't joining, and has heard of the generation that it is in."""
    return not owner.member.joining() and owner.generation == generation_of(owner)


def generation_of(owner: Owner) -> int:
    """As its transactions say it; -1 without one."""
    try:
        return int.from_bytes(owner.member.metadata()[7:11], "little")
    except StaleGenerationError:
        return -1


def shared(*owners: Owner) -> Callable[[], bool]:
    """All four tasks are out, evenly, each once, and everybody is stable."""

    def done() -> bool:
        sizes = {len(owner.active) for owner in owners}
        stable = all(is_stable(owner) for owner in owners)
        return stable and sizes == {4 // len(owners)} and len(frozenset().union(*(o.active for o in owners))) == 4

    return done


Start = Callable[..., Owner]


@pytest.fixture
def group(kafka: str) -> str:
    """A group id that is also the name of a topic with 4 partitions."""
    return new_topic(kafka, partitions=4)


@pytest.fixture
def start(kafka: str, group: str) -> Iterator[Start]:
    owners: list[Owner] = []

    def make(name: str, **more: Any) -> Owner:
        owners.append(Owner({"bootstrap.servers": kafka, **more.pop("client", {})}, group, name, **more))
        return owners[-1]

    yield make
    for owner in owners:
        owner.member.close(leave=True)


def silence(owner: Owner) -> None:
    """As a crash looks from outside: no word any more."""
    owner.member.close(leave=False)


def test_two_members_share_the_tasks_and_a_leaving_one_hands_over(kafka, group, start):
    a = start("a")
    drive(shared(a), a)
    a.commit(5)
    admin = AdminClient({"bootstrap.servers": kafka})
    cluster = Cluster({"bootstrap.servers": kafka}, request_timeout_ms=30_000)
    assert cluster.committed(group) == {TopicPartition(group, 0): 5}
    b = start("b")
    drive(shared(a, b), a, b)
    described = admin.describe_consumer_groups([group])[group].result(30)
    seen = {m.client_id: {tp.partition for tp in m.assignment.topic_partitions} for m in described.members}
    assert seen == {o.me.process_id: {task.partition for task in o.active} for o in (a, b)}
    assert described.partition_assignor == "milestones-v2"
    assert "Lost" not in a.kinds() + b.kinds()
    b.member.close(leave=True)
    drive(shared(a), a)


def test_a_transaction_commits_under_the_generation_and_not_under_an_old_one(kafka, group, start):
    a = start("a")
    drive(shared(a), a)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"t-{group}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    old = a.member.metadata()
    producer.send_offsets_to_transaction([KafkaTopicPartition(group, 0, 3)], old, 30)
    producer.commit_transaction(30)
    b = start("b")
    drive(shared(a, b), a, b)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([KafkaTopicPartition(group, 0, 4)], old, 30)
    assert caught.value.args[0].name() == "ILLEGAL_GENERATION"
    producer.abort_transaction(30)


def test_a_crashed_member_s_tasks_go_to_the_others_after_its_session(start):
    a, b = start("a"), start("b")
    drive(shared(a, b), a, b)
    silence(b)
    drive(shared(a), a)
    assert "Lost" not in a.kinds()


def test_a_static_member_restarts_without_a_rebalance_the_leader_too(start):
    patient = {"session_timeout_ms": 30_000}  # a machine at its limits must not take a restart for a crash
    members = {name: start(name, instance_id=name, **patient) for name in "ab"}
    drive(shared(*members.values()), *members.values())
    for name in members:
        before = members[name]
        silence(before)
        members[name] = start(name, instance_id=name, **patient)
        drive(shared(*members.values()), *members.values())
        assert members[name].active == before.active
        assert {owner.generation for owner in members.values()} == {before.generation}


def test_a_static_member_that_comes_back_with_more_threads_gets_more_tasks(start):
    a, b = start("a", instance_id="ia"), start("b", instance_id="ib")
    drive(shared(a, b), a, b)
    silence(a)
    bigger = start("a", instance_id="ia", capacity=3)
    drive(lambda: (len(bigger.active), len(b.active)) == (3, 1), bigger, b)


def test_of_two_members_with_one_static_id_the_older_fails_and_says_why(start):
    a = start("a", instance_id="same")
    drive(shared(a), a)
    b = start("b", instance_id="same")
    drive(lambda: "Failed" in a.kinds(), a, b)
    assert "give each instance a group_instance_id of its own" in str(a.events[-1].error)
    with pytest.raises(MembershipError):
        a.member.metadata()
    drive(shared(b), b)


def test_an_owner_that_stops_polling_is_out_and_comes_back_when_it_polls(start):
    a, b = start("a", max_poll_interval_ms=2_000), start("b")
    drive(shared(a, b), a, b)
    drive(shared(b), b)
    with pytest.raises(StaleGenerationError):
        a.commit(1)
    drive(shared(a, b), a, b)
    assert "Lost" in a.kinds()


def test_a_slow_owner_keeps_its_tasks_until_it_joins_and_the_others_wait(start):
    a = start("a")
    drive(shared(a), a)
    b = start("b")
    end = time.monotonic() + 8
    while time.monotonic() < end:
        a.member.poll()
        b.step()
        time.sleep(0.02)
    a.commit(2)
    a.member.join(replace(a.me, active=a.active))
    drive(shared(a, b), a, b)
    assert "Lost" not in a.kinds()


def test_no_common_protocol_is_a_clear_failure(start):
    a = start("a")
    drive(shared(a), a)
    b = start("b", protocols={"milestones-v9": 2})
    drive(lambda: "Failed" in b.kinds(), a, b)
    said = str(b.events[-1].error)
    assert "INCONSISTENT_GROUP_PROTOCOL" in said
    assert "upgrade_from" in said
    assert "this member offers milestones-v9" in said


def test_newer_protocol_names_wait_until_all_members_know_them(start):
    new = start("a")
    drive(shared(new), new)
    assert new.seen_versions() == {2}
    old = start("b", protocols={"milestones-v1": 1})
    drive(shared(new, old), new, old)
    assert new.seen_versions() == {1}
    old.member.close(leave=True)
    drive(shared(new), new)
    assert new.seen_versions() == {2}


def test_nobody_at_the_servers_is_kafka_unreachable():
    client: dict[str, object] = {"bootstrap.servers": "127.0.0.1:9,127.0.0.1:1"}
    lonely = Owner(client, "g", "a", unreachable_after_ms=300)
    try:
        drive(lambda: "Failed" in lonely.kinds(), lonely)
        [failed] = [event for event in lonely.events if isinstance(event, Failed)]
        assert isinstance(failed.error, KafkaUnreachableError)
    finally:
        lonely.member.close(leave=True)


JAAS = {
    "plain": "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='secret';",
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Path]]:
    """A broker with a plain listener and one of SASL over TLS, and its authority's certificate."""
    folder = tmp_path_factory.mktemp("secure")
    certified(folder)
    own = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(folder / "server.pem"),
        **{f"listener.name.secure.{name}.sasl.jaas.config": text for name, text in JAAS.items()},
    }
    with EmbeddedKafka(folder / "data", properties=own, listeners={"SECURE": "SASL_SSL"}) as broker:
        yield broker, folder / "ca.pem"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_members_speak_sasl_over_tls(secure, mechanism):
    broker, ca_file = secure
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    if mechanism != "PLAIN":
        info = ScramCredentialInfo(getattr(ScramMechanism, mechanism.replace("-", "_")), 4096)
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("ann", info, b"secret")])["ann"].result(30)
    group = new_topic(broker.bootstrap_servers, partitions=4)
    client: dict[str, object] = {
        "bootstrap.servers": broker.address("SECURE"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": "secret",
        "ssl.ca.location": str(ca_file),
    }
    AdminClient(client).list_topics(timeout=30)  # asks until the credentials have come to the broker
    a = Owner(client, group, "a")
    wrong = Owner({**client, "sasl.password": "guess"}, group, "b")
    try:
        drive(shared(a), a)
        a.commit(1)
        drive(lambda: "Failed" in wrong.kinds(), wrong)
        assert "sasl.password" in str(wrong.events[-1].error)
    finally:
        a.member.close(leave=True)
        wrong.member.close(leave=True)


def test_a_broker_killed_and_started_again_keeps_the_generation(secure):
    broker, _ = secure
    group = new_topic(broker.bootstrap_servers, partitions=4)
    client: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers}
    # Nobody polls, and nobody answers a heartbeat, for as long as a broker may take to start on a busy machine.
    patient = {"session_timeout_ms": 120_000, "heartbeat_interval_ms": 500, "max_poll_interval_ms": 300_000}
    a, b = Owner(client, group, "a", **patient), Owner(client, group, "b", **patient)
    try:
        drive(shared(a, b), a, b)
        a.commit(1)
        generation, seen = a.generation, len(a.events)
        broker.kill()
        broker.start()
        a.commit(2)
        drive(shared(a, b), a, b)
        assert generation_of(a) == generation
        assert len(a.events) == seen
    finally:
        a.member.close(leave=True)
        b.member.close(leave=True)
