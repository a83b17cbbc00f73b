"""Consumers that are told what to read: scripted messages first, then a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from milestones.common.errors import MilestonesError, OwnershipError
from milestones.common.kafka.consumers import AssignedConsumer, Fetched
from milestones.common.records import TopicPartition
from milestones.testing import KafkaProbe
from tests.topics import new_topic

IN, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
SETTINGS = {"group.id": "test", "bootstrap.servers": "127.0.0.1:1"}
DEADLINE_FETCHES = 200


class Scripted:
    """librdkafka, saying what a test wants."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.calls: list[tuple[str, Any]] = []

    def consume(self, count: int, timeout: float) -> list[Message]:
        self.calls.append(("consume", (count, timeout)))
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    def list_topics(self, topic: str, timeout: float) -> None:
        self.calls.append(("list_topics", topic))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def __getattr__(self, name: str) -> Any:
        return lambda partitions=(): self.calls.append((name, [(at.partition, at.offset) for at in partitions]))


def record(offset: int, partition: int = 0) -> Message:
    return Message(topic="in", partition=partition, offset=offset, value=b"v")


def told(code: int, partition: int = 0, offset: int = 0, *, fatal: bool = False) -> Message:
    return Message(topic="in", partition=partition, offset=offset, error=KafkaError(code, "made by a test", fatal))


def scripted(*messages: Message) -> tuple[AssignedConsumer, Scripted]:
    consumer, script = AssignedConsumer(SETTINGS), Scripted(*messages)
    consumer.close()
    consumer._consumer = script  # type: ignore[assignment]
    consumer.assign({IN: 0})
    script.calls.clear()
    return consumer, script


def fetch(*messages: Message) -> Fetched:
    return scripted(*messages)[0].fetch(100, 0)


def test_records_come_by_partition_in_order() -> None:
    assert [message.offset() for message in fetch(record(3), record(4)).records[IN]] == [3, 4]


def test_each_partition_has_all_its_records_in_order_however_the_client_mixes_them_and_ends() -> None:
    consumer, script = scripted()
    consumer.assign({IN: 0, TopicPartition("in", 1): 0})
    script.messages = [
        record(3), record(4), record(7, 1), told(KafkaError._PARTITION_EOF, 1, 8), record(5), record(2, 2),
        told(KafkaError._PARTITION_EOF, 0, 6), record(8, 1), record(6),
    ]  # fmt: skip
    fetched = consumer.fetch(100, 0)
    assert {at.partition: [one.offset() for one in some] for at, some in fetched.records.items()} == {
        0: [3, 4, 5, 6], 1: [7, 8],
    }  # fmt: skip
    assert fetched.ends == {}, "records came after both"


def test_records_of_a_partition_that_has_left_are_dropped() -> None:
    assert fetch(record(3, partition=1)).records == {}


def test_an_end_is_told_when_nothing_came_after_it() -> None:
    assert fetch(record(3), told(KafkaError._PARTITION_EOF, offset=4)).ends == {IN: 4}
    assert fetch(told(KafkaError._PARTITION_EOF, offset=4), record(4)).ends == {}
    again = told(KafkaError._PARTITION_EOF, offset=5)
    assert fetch(told(KafkaError._PARTITION_EOF, offset=4), record(4), again).ends == {IN: 5}


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._PARTITION_EOF,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    ],
)
def test_what_librdkafka_tells_late_about_a_partition_that_has_left_is_passed_over(code: int) -> None:
    assert fetch(told(code, partition=1)) == Fetched()


def test_positions_and_partitions_that_are_gone_are_told() -> None:
    assert fetch(told(KafkaError._AUTO_OFFSET_RESET)).out_of_range == [IN]
    assert fetch(told(KafkaError.UNKNOWN_TOPIC_OR_PART)).gone == [IN]


def test_what_librdkafka_mends_by_itself_is_no_error() -> None:
    assert fetch(told(KafkaError._TRANSPORT), record(3)).records.keys() == {IN}


def test_a_lasting_error_is_raised_as_one_that_no_new_producer_can_mend() -> None:
    with pytest.raises(MilestonesError, match=r"can't read in-0.*READ"):
        fetch(told(KafkaError._FATAL, fatal=True))


def test_a_partition_that_may_not_be_read_is_told_with_what_to_do_and_keeps_no_record_of_another_back() -> None:
    fetched = fetch(told(KafkaError.TOPIC_AUTHORIZATION_FAILED), record(3))
    assert fetched.records.keys() == fetched.refused.keys() == {IN}
    with pytest.raises(MilestonesError, match=r"can't read in-0.*READ"):
        fetched.allowed()


def test_a_fetch_waits_for_the_first_record_only() -> None:
    consumer, script = scripted(record(1), record(2), record(3))
    assert len(consumer.fetch(100, 70).records[IN]) == 3
    assert script.calls == [("consume", (1, 0.07)), ("consume", (99, 0))]


def test_only_what_changes_is_said_to_librdkafka() -> None:
    consumer, script = scripted()
    consumer.unassign([OTHER])
    consumer.pause([OTHER])
    consumer.resume([IN])
    assert script.calls == []
    consumer.pause([IN, OTHER])
    consumer.pause([IN])
    consumer.resume([IN])
    assert [call for call, _ in script.calls] == ["pause", "resume"]
    assert consumer.paused == frozenset()


def test_an_assigned_partition_that_is_assigned_again_moves_and_is_not_paused_any_more() -> None:
    consumer, script = scripted()
    consumer.pause([IN])
    consumer.assign({IN: 7, OTHER: OFFSET_BEGINNING})
    assert [call for call, _ in script.calls] == ["pause", "resume", "incremental_unassign", "incremental_assign"]
    assert script.calls[-1][1] == [(0, 7), (1, OFFSET_BEGINNING)]
    assert consumer.assigned == {IN, OTHER}
    assert consumer.paused == frozenset()


def test_the_leaders_of_a_topic_are_asked_for_when_its_first_partition_is_assigned() -> None:
    consumer, script = scripted()
    consumer.assign({OTHER: 0})
    assert script.calls == [("incremental_assign", [(1, 0)])]
    consumer.assign({TopicPartition("new", 0): 0, TopicPartition("new", 1): 0})
    assert script.calls[1:] == [("incremental_assign", [(0, 0), (1, 0)]), ("list_topics", "new")]


def test_another_threads_touch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, _ = scripted()
    monkeypatch.setattr("milestones.common.kafka.clients.get_ident", lambda: -1)
    with pytest.raises(OwnershipError, match="AssignedConsumer belongs to thread"):
        consumer.fetch(1, 0)


# -- on a real broker


class Reading:
    """A topic of two partitions, and a consumer."""

    def __init__(self, kafka: str) -> None:
        self.topic, self.probe = new_topic(kafka, partitions=2), KafkaProbe(kafka)
        settings = {"bootstrap.servers": kafka, "group.id": self.topic, "isolation.level": "read_committed"}
        self.consumer = AssignedConsumer({**settings, "fetch.wait.max.ms": 50})

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def transaction(self, *values: str, commit: bool = True, partition: int = 0) -> None:
        self.probe.write(self.topic, *values, partition=partition, transactional_id=self.topic, commit=commit)

    def until(self, done: Any) -> Fetched:
        """Fetch until `done(all)`; everything that came."""
        everything = Fetched()
        for _ in range(DEADLINE_FETCHES):
            fetched = self.consumer.fetch(100, 100)
            for partition, messages in fetched.records.items():
                everything.records.setdefault(partition, []).extend(messages)
            everything.ends.update(fetched.ends)
            everything.out_of_range += fetched.out_of_range
            if done(everything):
                return everything
        raise AssertionError(f"it never came; so far {everything}")

    def values(self, fetched: Fetched, partition: int = 0) -> list[bytes | None]:
        return [message.value() for message in fetched.records.get(self.at(partition), [])]


@pytest.fixture
def r(kafka: str) -> Iterator[Reading]:
    reading = Reading(kafka)
    with closing(reading.consumer):
        yield reading


@pytest.mark.kafka
def test_the_end_that_is_told_lies_after_aborted_records_and_transaction_markers(r: Reading) -> None:
    r.transaction("a", "b")
    r.transaction("never", commit=False)
    r.consumer.assign({r.at(0): 0})
    fetched = r.until(lambda got: got.ends.get(r.at(0)) == 5)
    assert r.values(fetched) == [b"a", b"b"]


@pytest.mark.kafka
def test_a_position_that_was_deleted_and_one_beyond_the_end_are_told_and_reading_goes_on_where_we_say(
    r: Reading,
) -> None:
    r.transaction("a", "b", "c")
    for deleted in r.probe.admin.delete_records([Position(r.topic, 0, 2)]).values():
        deleted.result(20)
    for position in (0, 99):
        r.consumer.assign({r.at(0): position})
        assert set(r.until(lambda got: got.out_of_range).out_of_range) == {r.at(0)}
    r.consumer.assign({r.at(0): OFFSET_BEGINNING})
    assert r.values(r.until(lambda got: r.at(0) in got.ends)) == [b"c"]


@pytest.mark.kafka
def test_assigning_and_taking_away_one_partition_does_not_disturb_another(r: Reading) -> None:
    r.transaction("a", "b")
    r.transaction("x", partition=1)
    r.consumer.assign({r.at(0): 1})
    assert r.values(r.until(lambda got: r.at(0) in got.ends)) == [b"b"]
    r.consumer.assign({r.at(1): 0})
    assert r.values(r.until(lambda got: r.at(1) in got.ends), 1) == [b"x"]
    r.consumer.unassign([r.at(1)])
    r.transaction("y", partition=1)
    r.transaction("c")
    fetched = r.until(lambda got: r.at(0) in got.records)
    assert r.values(fetched) == [b"c"]
    assert r.values(fetched, 1) == []


@pytest.mark.kafka
def test_a_partition_that_was_paused_reads_on_without_a_gap(r: Reading) -> None:
    r.transaction("a", "b", "c")
    r.consumer.assign({r.at(0): 0})
    first = r.until(lambda got: r.at(0) in got.records)
    r.consumer.pause([r.at(0)])
    r.transaction("d")
    assert r.consumer.fetch(100, 100).records == {}
    r.consumer.resume([r.at(0)])
    rest = r.until(lambda got: r.at(0) in got.ends)
    assert r.values(first) + r.values(rest) == [b"a", b"b", b"c", b"d"]
    assert r.consumer.known_end(r.at(0)) == 6


@pytest.mark.kafka
def test_a_partition_that_leaves_paused_and_comes_back_is_read(r: Reading) -> None:
    r.transaction("a", "b")
    r.consumer.assign({r.at(0): 0})
    r.until(lambda got: r.at(0) in got.records)
    r.consumer.pause([r.at(0)])
    r.consumer.unassign([r.at(0)])
    r.consumer.assign({r.at(0): 1})
    assert r.values(r.until(lambda got: r.at(0) in got.ends)) == [b"b"]


@pytest.mark.kafka
def test_the_partition_count_of_a_topic_is_asked_and_a_missing_topic_is_an_error(r: Reading) -> None:
    assert r.consumer.partitions_of(r.topic, 10_000) == 2
    with pytest.raises(KafkaException):
        r.consumer.partitions_of(f"{r.topic}-nowhere", 10_000)
