"""Where changelogs end after a flush, by a question to the owner of the admin client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from milestones.common.errors import OwnershipError
from milestones.common.kafka.admin import AdminCall
from milestones.common.kafka.changelog_ends import ChangelogEnds
from milestones.common.kafka.failures import is_passing
from milestones.common.records import TopicPartition

A, B = TopicPartition("log", 0), TopicPartition("log", 1)


class FakeAdmin:
    """Keeps the calls; `answer` answers the oldest."""

    def __init__(self) -> None:
        self.calls: list[AdminCall[Any, Any]] = []
        self.asked: list[set[TopicPartition]] = []

    def ask(self, begin: Callable[[Any], Mapping[Any, Future[Any]]]) -> Any:
        self.calls.append(call := AdminCall(begin))
        begin(SimpleNamespace(start_listing=lambda partitions, **_: self.asked.append(set(partitions))))
        return call.answers

    def answer(self, **by_partition: int | Exception) -> None:
        futures: dict[TopicPartition, Future[Any]] = {}
        for name, end in by_partition.items():
            future = futures[{"a": A, "b": B}[name]] = Future()
            if isinstance(end, Exception):
                future.set_exception(end)
            else:
                future.set_result(SimpleNamespace(offset=end))
        self.calls.pop(0).answers.set_result(futures)


def wanting(*partitions: TopicPartition) -> tuple[ChangelogEnds, FakeAdmin]:
    ends = ChangelogEnds(admin := FakeAdmin())
    ends.wanted.update(partitions)
    return ends, admin


def test_ends_are_asked_for_once_and_told_when_kafka_has_answered() -> None:
    ends, admin = wanting(A, B)
    assert ends.ask(1_000)
    assert ends.told(0) is None
    admin.answer(a=7, b=8)
    assert ends.told(0) == {A: 7, B: 8}
    assert not ends.ask(1_000)


def test_no_question_is_asked_when_no_changelog_was_written() -> None:
    assert not ChangelogEnds(None).ask(1_000)


@pytest.mark.parametrize("why", ["no answer", "an error that passes", "an error that stays"])
def test_ends_that_were_not_told_are_asked_for_again(why: str) -> None:
    ends, admin = wanting(A)
    ends.ask(1_000)
    if why != "no answer":
        code = KafkaError._TIMED_OUT if "passes" in why else KafkaError.TOPIC_AUTHORIZATION_FAILED
        admin.answer(a=KafkaException(KafkaError(code)))
        with pytest.raises(KafkaException) as raised:
            ends.told(0)
        assert is_passing(raised.value) == ("passes" in why)
    ends.wanted.add(B)
    assert ends.ask(1_000)
    assert admin.asked == [{A}, {A, B}]


def test_an_answer_to_an_earlier_question_is_none_to_a_later_one() -> None:
    """The changelog may have grown in between."""
    ends, admin = wanting(A)
    ends.ask(1_000)
    ends.ask(1_000)
    admin.answer(a=7)
    assert ends.told(0) is None
    admin.answer(a=9)
    assert ends.told(0) == {A: 9}


def test_what_is_written_while_kafka_is_asked_is_asked_for_after_the_next_flush() -> None:
    ends, admin = wanting(A)
    ends.ask(1_000)
    ends.wanted.add(A)
    admin.answer(a=7)
    ends.told(0)
    assert ends.ask(1_000)


def test_partitions_that_are_forgotten_are_not_asked_for() -> None:
    ends, _ = wanting(A)
    ends.ask(1_000)
    ends.wanted.add(B)
    ends.clear()
    assert not ends.ask(1_000)


def test_a_producer_without_a_way_to_an_admin_client_says_so() -> None:
    ends = ChangelogEnds(None)
    ends.wanted.add(A)
    with pytest.raises(OwnershipError, match="this is a bug"):
        ends.ask(1_000)
