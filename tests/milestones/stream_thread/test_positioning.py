"""When tasks are asked about, so that those that come together begin together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import TimeoutExceededError
from milestones.common.kafka.topic_metadata import number_of
from milestones.common.records import TopicPartition
from milestones.common.task.metadata import OffsetMetadata, topic_entry, written_mark
from milestones.stream_thread.positioning import AGAIN_MS, GATHER_MS, Positioning
from tests.milestones.fakes import CHANGELOG, IN, A, Running, World, counting, passing


class Asking:
    """A part that positions tasks, and which partitions each of its questions is about."""

    def __init__(self) -> None:
        self.questions: list[set[int]] = []
        world = World(passing())
        clients: Any = SimpleNamespace(member=self)
        self.positioning = Positioning(world.context, clients)
        self.tasks: list[Any] = []

    def joining(self) -> bool:
        return False

    def fetch_offsets(self, _number: int, partitions: frozenset[TopicPartition], _answers: object) -> None:
        self.questions.append({partition.partition for partition in partitions})

    def open(self, *numbers: int) -> None:
        for number in numbers:
            task = SimpleNamespace(partitions=frozenset({TopicPartition("in", number)}))
            self.tasks.append(_Entry(task))

    def turn(self, now_ms: int, *, opening: bool) -> list[set[int]]:
        self.positioning.run_once(self.tasks, now_ms, opening=opening)
        return self.questions


class _Entry:
    def __init__(self, task: Any) -> None:
        self.id, self.active_task, self.rolled_back = task, task, False


def test_tasks_whose_stores_are_opened_one_after_the_other_are_asked_about_in_one_question() -> None:
    a = Asking()
    a.open(0, 1)
    assert a.turn(0, opening=True) == []
    a.open(2)
    assert a.turn(GATHER_MS - 1, opening=False) == [{0, 1, 2}]


def test_a_task_does_not_wait_for_one_whose_stores_take_long_to_open() -> None:
    a = Asking()
    a.open(0)
    assert a.turn(0, opening=True) == []
    assert a.turn(GATHER_MS, opening=True) == [{0}]
    a.open(1)
    assert a.turn(GATHER_MS, opening=True) == [{0}, {1}]


def test_a_task_commits_the_id_of_the_topic_that_it_has_begun_to_read_with_each_offset() -> None:
    r = Running(World(passing()))
    r.world.requests.topic_ids["in"] = "the first"
    r.world.fed("a")
    r.run(0)
    r.world.requests.topic_ids["in"] = "made anew"
    r.feed("b", steps=5, ms=1_000)
    committed = r.world.member.committed or r.world.producer.offsets
    assert OffsetMetadata.decode(committed[IN].metadata).topic_id("in") == number_of("the first")


def test_each_commit_names_the_internal_topics_that_the_task_writes_to() -> None:
    r = Running(World(counting()))
    r.world.requests.topic_ids |= {"in": "input", CHANGELOG: "changelog"}
    r.world.fed("a")
    r.run(0)
    r.feed("b", steps=5, ms=1_000)
    committed = r.world.member.committed or r.world.producer.offsets
    marks = OffsetMetadata.decode(committed[IN].metadata).written
    assert marks == {written_mark(CHANGELOG, number_of("changelog"))}


def test_a_commit_hands_on_what_is_known_of_internal_topics_where_no_id_is_known() -> None:
    r = Running(World(counting()))
    known = frozenset({written_mark(CHANGELOG, number_of("changelog"))})
    r.world.commit(IN, 0, OffsetMetadata(5, 1, "tx", written=known).encode())
    r.world.requests.topic_ids = {}
    r.run(0)
    r.feed("b", steps=5, ms=1_000)
    committed = r.world.member.committed or r.world.producer.offsets
    assert OffsetMetadata.decode(committed[IN].metadata).written == known


def test_what_is_committed_says_which_topic_it_belongs_to_when_a_task_begins() -> None:
    r = Running(World(passing()))
    r.world.commit(IN, 3, OffsetMetadata(5, 1, "tx", topics=entry("in", "a former one")).encode())
    r.run(0)
    (asked,) = r.world.requests.ids_asked
    assert (asked.topics, asked.known) == ({"in"}, {IN: number_of("a former one")})


def test_a_task_that_was_rolled_back_asks_for_the_topic_that_it_has_read_before() -> None:
    """A broker drops the committed offsets of a topic that is deleted."""
    r = Running(World(passing()))
    r.world.requests.topic_ids["in"] = "the first"
    r.run(0)
    r.tasks.roll_back()
    r.step(3)
    assert r.world.requests.ids_asked[-1].known == {IN: number_of("the first")}


def test_a_task_waits_while_its_topic_isnt_the_one_that_is_known_and_goes_on_once_kafka_says_so() -> None:
    r = Running(World(passing()))
    r.world.requests.ids_error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    r.rebalance(0, steps=20)
    assert r.places[A] == "positioning"
    asked = len(r.world.requests.ids_asked)
    r.step(5)
    assert len(r.world.requests.ids_asked) == asked, "not in each turn"
    r.world.requests.ids_error = None
    r.step(6, ms=AGAIN_MS)
    assert r.places[A] == "processing"


def is_seen_each_minute(r: Running, caplog: pytest.LogCaptureFixture, line: str) -> None:
    """For five minutes the log and the status say what the task waits for."""
    for _ in range(5):
        caplog.clear()
        r.step(59, ms=1_000)
        assert line in caplog.text, "at least once a minute"
        assert "no route to a broker" in r.tasks.failing()[A]


def test_a_question_about_topics_that_fails_for_ever_is_seen_and_ends_its_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = Running(World(passing(), {"task_timeout_ms": 300_000}))
    error = KafkaException(KafkaError(KafkaError._TRANSPORT, "no route to a broker"))
    r.world.requests.ids_error = error
    r.rebalance(0, steps=20)
    is_seen_each_minute(r, caplog, "where the input of tasks 0_0 begins isn't known yet")
    with pytest.raises(TimeoutExceededError, match=r"task 0_0 can't learn within task_timeout_ms") as ended:
        r.step(20, ms=1_000)
    assert ended.value.__cause__ is error


def test_a_question_that_is_answered_in_the_end_is_forgotten() -> None:
    r = Running(World(passing(), {"task_timeout_ms": 60_000}))
    r.world.requests.ids_error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    r.rebalance(0, steps=20)
    r.step(50, ms=1_000)
    r.world.requests.ids_error = None
    r.step(6, ms=AGAIN_MS)
    assert (r.places[A], r.tasks.failing()) == ("processing", {})
    r.world.requests.ids_error = KafkaException(KafkaError(KafkaError._TRANSPORT))
    r.tasks.roll_back()
    r.step(50, ms=1_000)
    assert r.places[A] == "positioning", "the time begins anew"


def test_bounds_of_inputs_that_kafka_does_not_say_are_seen_too(caplog: pytest.LogCaptureFixture) -> None:
    r = Running(World(passing(), {"task_timeout_ms": 300_000}))
    r.world.requests.error = KafkaException(KafkaError(KafkaError._TRANSPORT, "no route to a broker"))
    r.rebalance(0, steps=20)
    is_seen_each_minute(r, caplog, "bounds of task 0_0's inputs aren't known yet")
    with pytest.raises(TimeoutExceededError, match="where its inputs begin and end"):
        r.step(20, ms=1_000)


def entry(topic: str, id: str) -> dict[str, int]:
    return {topic_entry(topic): number_of(id)}
