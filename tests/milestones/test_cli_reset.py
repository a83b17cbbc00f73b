"""`milestones reset`, against a real broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from milestones.cli.main import invoke
from milestones.cli.resetting import Target, is_internal
from milestones.common.errors import StateLockedError
from milestones.common.state.directory import StateDirectory

_numbers = itertools.count()


def test_internal_topics_are_those_with_the_applications_prefix_and_a_known_ending() -> None:
    assert is_internal("words-counts-changelog", "words")
    assert is_internal("words-counts-repartition", "words")
    assert not is_internal("words-counts", "words")
    assert not is_internal("other-counts-changelog", "words")
    assert not is_internal("wordsmith-counts-changelog", "words")


def test_a_target_is_earliest_latest_or_a_time_in_utc() -> None:
    assert Target.parse("latest") == Target("latest")
    assert Target.parse("1970-01-01T00:00:01").timestamp_ms == 1000
    assert Target.parse("1970-01-01T01:00:01+01:00").timestamp_ms == 1000
    with pytest.raises(ValueError):
        Target.parse("yesterday")


def test_a_target_that_is_none_is_refused_before_kafka_is_asked() -> None:
    assert invoke(["reset", "-a", "words", "-b", "127.0.0.1:1", "--to", "yesterday"]) == 2


class Application:
    """What an application leaves behind: committed offsets, internal topics, local state."""

    def __init__(self, servers: str, state: Path) -> None:
        self.id = f"reset-{next(_numbers)}-{time.time_ns()}"
        self.servers, self.state = servers, state
        self.input, self.changelog = f"input-{self.id}", f"{self.id}-counts-changelog"
        self.repartition, self.output = f"{self.id}-words-repartition", f"{self.id}-output"
        self.admin = AdminClient({"bootstrap.servers": servers})
        topics = [self.input, self.changelog, self.repartition, self.output]
        for answer in self.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            answer.result()
        producer = Producer({"bootstrap.servers": servers})
        for second in range(1, 6):
            producer.produce(self.input, b"x", timestamp=second * 1000)
        assert producer.flush(30) == 0
        self.commit({self.input: 4, self.repartition: 0})
        StateDirectory(state, self.id).close()

    def commit(self, offsets: dict[str, int]) -> None:
        positions = [TopicPartition(topic, 0, offset) for topic, offset in offsets.items()]
        request = [ConsumerGroupTopicPartitions(self.id, positions)]

        def done() -> bool:
            answer = self.admin.alter_consumer_group_offsets(request)[self.id].result()
            return all(at.error is None for at in answer.topic_partitions)

        eventually(done)

    def committed(self) -> int:
        asked = [ConsumerGroupTopicPartitions(self.id, [TopicPartition(self.input, 0)])]
        answer = self.admin.list_consumer_group_offsets(asked)[self.id].result()
        return int(answer.topic_partitions[0].offset)

    def topics(self) -> set[str]:
        return {name for name in self.admin.list_topics(timeout=10).topics if self.id in name}

    def reset(self, *options: str) -> int:
        return invoke(["reset", "-a", self.id, "-b", self.servers, "-s", f"state_dir={self.state}", *options])


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    return Application(kafka, tmp_path / "state")


def eventually(condition: Callable[[], bool]) -> None:
    """Kafka's deletion of topics ends a little after its answer."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
def test_a_running_application_is_not_reset(application: Application, capsys: pytest.CaptureFixture[str]) -> None:
    member = Consumer({"bootstrap.servers": application.servers, "group.id": application.id, "client.id": "still-here"})
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
