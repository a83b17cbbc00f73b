"""`milestones reset`, against a real broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from milestones.cli.main import invoke
from milestones.cli.resetting import Plan, Target, is_internal, make_plan, show
from milestones.common import records, serdes
from milestones.common.config import StreamsConfig
from milestones.common.errors import StateLockedError
from milestones.common.kafka.groups import GroupReader
from milestones.common.kafka.topic_metadata import number_of
from milestones.common.kafka.topics import Cluster
from milestones.common.state.directory import StateDirectory
from milestones.common.state.spark_folders import spark_directories, spark_folder
from milestones.common.state.spec import StoreSpec
from milestones.common.task.metadata import OffsetMetadata, offset_entry, topic_entry
from milestones.common.topology import Topology
from milestones.instance.application import Application as App
from milestones.testing import KafkaProbe, until
from milestones.workers.settings import state_directories
from tests.milestones.cli.conftest import plain
from tests.milestones.fakes import counting

_numbers = itertools.count()


def test_internal_topics_are_those_with_the_applications_prefix_and_a_known_ending() -> None:
    assert is_internal("words-counts-changelog", "words")
    assert is_internal("words-counts-repartition", "words")
    assert not is_internal("words-counts", "words")
    assert not is_internal("other-counts-changelog", "words")
    assert not is_internal("wordsmith-counts-changelog", "words")


class FakeCluster:
    """What a plan asks, answered from memory."""

    def __init__(self, topics: Iterable[str], groups: Iterable[str] = (), committed: Iterable[str] = ()) -> None:
        self._topics, self._groups, self._committed = list(topics), list(groups), list(committed)

    def partitions(self) -> dict[str, int]:
        return dict.fromkeys(self._topics, 1)

    def groups(self) -> list[str]:
        return self._groups

    def members(self, group: str) -> list[str]:
        return []

    def committed(self, group: str) -> dict[records.TopicPartition, int]:
        return {records.TopicPartition(topic, 0): 7 for topic in self._committed}

    def offsets(self, partitions: Iterable[Any], where: str, timestamp_ms: int | None) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0)


def plan_of(cluster: FakeCluster, topology: Topology | None = None, **settings: Any) -> Plan:
    config = StreamsConfig(application_id="rs", bootstrap_servers="localhost:1", state_dir="no-such-dir", **settings)
    application = None if topology is None else App.of(topology, config)
    return make_plan(cluster, config, [], Target("earliest"), False, application)  # type: ignore[arg-type]


def test_topics_that_a_longer_group_id_explains_are_left_and_the_plan_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = ["rs-counts-changelog", "rs-eureka-changelog"], ["rs-eu-counts-changelog", "rs-eu-x-repartition"]
    plan = plan_of(FakeCluster(ours + theirs, groups=["rs", "rs-eu", "r", "rs-e", "other"]))
    assert plan.topics == ours
    assert list(plan.left_out) == theirs
    show(plan)
    assert "leave topic rs-eu-counts-changelog: it may belong to the group rs-eu;" in capsys.readouterr().out


def test_the_topology_settles_which_topics_are_the_applications_own_whatever_groups_there_are() -> None:
    topics = ["rs-counts-changelog", "rs-eu-counts-changelog", "rs-old-changelog", "rs-all-counts-changelog"]
    plan = plan_of(FakeCluster(topics, groups=["rs-counts", "rs-all"]), counting())
    assert plan.topics == ["rs-counts-changelog"]
    assert plan.left_out == dict.fromkeys(sorted(topics[1:]), "the topology has no such topic")


def test_offsets_on_topics_that_are_left_stay_unless_the_topology_reads_them() -> None:
    cluster = FakeCluster(["in", "rs-eu-x-repartition"], ["rs-eu"], committed=["in", "rs-eu-x-repartition"])
    assert [str(partition) for partition in plan_of(cluster).offsets] == ["in-0"]
    reading = plan_of(cluster, counting(("in", "rs-eu-x-repartition")))
    assert [str(partition) for partition in reading.offsets] == ["in-0", "rs-eu-x-repartition-0"]
    assert reading.topics == []


def test_a_source_topic_that_serves_as_changelog_is_not_the_applications_own() -> None:
    topology = counting()
    spec = StoreSpec("table", key_serde=serdes.STRING, value_serde=serdes.STRING, source_topic="in")
    topology.add_state_store(spec, "counting")
    assert plan_of(FakeCluster(["in", "rs-counts-changelog"]), topology).topics == ["rs-counts-changelog"]


def test_a_target_is_earliest_latest_or_a_time_in_utc() -> None:
    assert Target.parse("latest") == Target("latest")
    assert Target.parse("1970-01-01T00:00:01").timestamp_ms == 1000
    assert Target.parse("1970-01-01T01:00:01+01:00").timestamp_ms == 1000
    with pytest.raises(ValueError):
        Target.parse("yesterday")


def test_a_target_that_is_none_is_refused_before_kafka_is_asked() -> None:
    assert invoke(["reset", "-a", "words", "-b", "127.0.0.1:1", "--to", "yesterday"]) == 2


def test_a_kafka_that_cannot_be_reached_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("milestones.cli.cluster.TIMEOUT_S", 1.0)
    assert invoke(["reset", "-a", "words", "-b", "127.0.0.1:1"]) == 3
    told = plain(capsys.readouterr().err)
    assert "'127.0.0.1:1' answered within 1 s" in told
    assert "Connection refused" in told


class Application:
    """What an application leaves behind: committed offsets, internal topics, local state."""

    def __init__(self, servers: str, state: Path) -> None:
        self.id = f"reset-{next(_numbers)}-{time.time_ns()}"
        self.servers, self.state = servers, state
        self.input, self.changelog = f"input-{self.id}", f"{self.id}-counts-changelog"
        self.repartition, self.output = f"{self.id}-words-repartition", f"{self.id}-output"
        self.probe = KafkaProbe(servers)
        topics = [self.input, self.changelog, self.repartition, self.output]
        self.probe.create(dict.fromkeys(topics, 1))
        for second in range(1, 6):
            self.probe.write(self.input, "x", timestamp=second * 1000)
        self.commit({self.input: 4, self.repartition: 0})
        StateDirectory(state, self.id).close()

    def commit(self, offsets: dict[str, int], group: str | None = None) -> None:
        group = group or self.id
        positions = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(group, positions)]

        def done() -> bool:
            answer = self.probe.admin.alter_consumer_group_offsets(request)[group].result()
            return all(at.error is None for at in answer.topic_partitions)

        eventually(done)

    def committed(self) -> int:
        return self.probe.committed(self.id)[records.TopicPartition(self.input, 0)]

    def topics(self) -> set[str]:
        return {name for name in self.probe.topics() if self.id in name}

    def reset(self, *options: str) -> int:
        return invoke(["reset", "-a", self.id, "-b", self.servers, "-s", f"state_dir={self.state}", *options])


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    return Application(kafka, tmp_path / "state")


def eventually(condition: Callable[[], bool]) -> None:
    """Kafka's deletion of topics ends a little after its answer."""
    until(condition, "Kafka has done it", 20)


@pytest.mark.kafka
def test_without_execute_only_the_plan_is_shown(application: Application, capsys: pytest.CaptureFixture[str]) -> None:
    assert application.reset() == 0
    captured = capsys.readouterr()
    assert application.changelog in captured.out
    assert application.repartition in captured.out
    assert f"{application.input}-0" in captured.out
    assert application.output not in captured.out
    assert "nothing was changed" in captured.err
    assert application.committed() == 4
    assert len(application.topics()) == 4
    assert (application.state / application.id).is_dir()


@pytest.mark.kafka
def test_execute_resets_offsets_and_deletes_internal_topics_and_local_state(application: Application) -> None:
    assert application.reset("--execute") == 0
    assert application.committed() == 0
    assert not (application.state / application.id).exists()
    eventually(lambda: application.topics() == {application.input, application.output})
    assert application.reset("--execute") == 0, "a reset can be repeated"


@pytest.mark.kafka
def test_the_topics_of_an_application_whose_id_is_longer_are_not_deleted(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = f"{application.id}-eu"
    theirs = f"{longer}-counts-changelog"
    application.probe.create({theirs: 1})
    application.commit({application.input: 1}, group=longer)
    assert application.reset("--execute") == 0
    assert f"leave topic {theirs}" in capsys.readouterr().out
    eventually(lambda: application.topics() == {application.input, application.output, theirs})


@pytest.mark.kafka
def test_an_application_file_names_the_topics_that_are_deleted(application: Application, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("from tests.milestones.fakes import counting\ntopology = counting()\n")
    assert application.reset(str(app), "--execute") == 0
    kept = {application.input, application.output, application.repartition}
    eventually(lambda: application.topics() == kept)


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("target", "offset"), [("latest", 5), ("1970-01-01T00:00:03Z", 2), ("2100-01-01", 5), ("1970-01-01", 0)]
)
def test_offsets_are_set_to_the_end_or_to_a_time(application: Application, target: str, offset: int) -> None:
    assert application.reset("--to", target, "--execute", "--keep-state") == 0
    assert application.committed() == offset
    assert (application.state / application.id).is_dir()


@pytest.mark.kafka
def test_input_topics_without_offsets_can_be_named(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    assert application.reset("--input-topics", application.output, "--to", "latest", "--execute") == 0
    assert f"{application.output}-0" in capsys.readouterr().out
    assert application.reset("--input-topics", "no-such-topic") == 1


@pytest.mark.kafka
def test_one_input_topic_begins_anew_and_all_else_stays_as_it_is(application: Application) -> None:
    at, topics = records.TopicPartition(application.input, 0), application.topics()
    topic, of = topic_entry(application.input), offset_entry(application.input)
    kept = OffsetMetadata(5_000, 9, "tx", {"a kept cell": 3}, {topic: 1}, {of: 4})
    position = TopicPartition(application.input, 0, 4, kept.encode())
    request = [ConsumerGroupTopicPartitions(application.id, [position])]
    application.probe.admin.alter_consumer_group_offsets(request)[application.id].result()
    assert application.reset("--only", application.input) == 0
    assert application.committed() == 4
    assert application.reset("--only", application.input, "--execute") == 0
    cluster = Cluster({"bootstrap.servers": application.servers})
    id = cluster.look([application.input])[application.input].id
    assert id is not None
    with closing(GroupReader({"bootstrap.servers": application.servers}, application.id, timeout_ms=20_000)) as reader:
        found = reader.offsets([at])[at]
    now = OffsetMetadata(5_000, 9, "tx", {"a kept cell": 3}, {topic: number_of(id)}, {of: 0})
    assert (found.offset, OffsetMetadata.decode(found.metadata)) == (0, now)
    assert (application.state / application.id).is_dir()
    assert application.topics() == topics


@pytest.mark.kafka
def test_only_an_input_topic_that_exists_can_begin_anew(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    assert application.reset("--only", "no-such-topic", "--execute") == 1
    assert "there is no topic no-such-topic" in plain(capsys.readouterr().err)
    assert application.reset("--only", application.changelog, "--execute") == 1
    assert "is an internal topic of the application, and it has lost nothing" in plain(capsys.readouterr().err)


@pytest.mark.kafka
def test_a_running_application_is_not_reset(application: Application, capsys: pytest.CaptureFixture[str]) -> None:
    member = Consumer({
        "bootstrap.servers": application.servers, "group.id": application.id, "client.id": "still-here",
        "enable.auto.commit": False,
    })  # fmt: skip
    member.subscribe([application.input])
    try:
        eventually(lambda: member.poll(0.1) is None and bool(member.assignment()))
        assert application.reset("--execute") == 1
        assert "still-here" in capsys.readouterr().err
        assert application.committed() == 4
        assert len(application.topics()) == 4
    finally:
        member.close()


@pytest.mark.kafka
def test_execute_deletes_the_state_of_spark_tasks_too_but_not_another_applications(application: Application) -> None:
    tasks, other = spark_folder(application.state, application.id), f"spark-{application.id}"
    StateDirectory(application.state, other).close()
    for place in (tasks / "0_1", tasks / "attempts" / "0_1-x"):
        StateDirectory(place, application.id).close()
    assert application.reset("--execute") == 0
    assert list(spark_directories(application.state, application.id)) == []
    assert (application.state / other / "process").is_file()


@pytest.mark.kafka
def test_execute_deletes_the_state_of_all_workers(application: Application) -> None:
    for worker, name in (("worker-2", application.id), ("worker-11", application.id), ("worker-2", "another")):
        StateDirectory(application.state / worker, name).close()
    assert application.reset("--execute") == 0
    assert state_directories(application.state, application.id) == []
    assert (application.state / "worker-2" / "another" / "process").is_file()


@pytest.mark.kafka
def test_state_that_a_worker_holds_is_not_touched_nor_anything_else(application: Application) -> None:
    held = StateDirectory(application.state / "worker-2", application.id)
    assert application.reset("--execute") == StateLockedError.exit_code
    held.close()
    assert len(state_directories(application.state, application.id)) == 2


@pytest.mark.kafka
def test_state_that_a_spark_task_holds_is_not_touched_nor_anything_else(application: Application) -> None:
    held = StateDirectory(spark_folder(application.state, application.id) / "0_1", application.id)
    assert application.reset("--execute") == StateLockedError.exit_code
    held.close()
    assert (application.state / application.id).is_dir()
    assert len(list(spark_directories(application.state, application.id))) == 1


@pytest.mark.kafka
def test_state_that_an_instance_holds_is_not_touched_nor_anything_else(
    application: Application, capsys: pytest.CaptureFixture[str]
) -> None:
    held = StateDirectory(application.state, application.id)
    try:
        assert application.reset("--execute") == StateLockedError.exit_code
    finally:
        held.close()
    assert application.committed() == 4
    assert (application.state / application.id).is_dir()


@pytest.mark.kafka
def test_an_application_that_never_ran_has_nothing_to_reset(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["reset", "-a", "never-ran", "-b", kafka]) == 0
    assert "nothing to reset" in capsys.readouterr().err
