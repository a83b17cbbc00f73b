"""The housekeeper's watch over the application's topics: deleted, made anew, with more partitions; driven by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from milestones import StreamsBuilder
from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import number_of
from milestones.common.mailbox import Mailbox
from milestones.common.records import GLOBAL, TopicPartition
from milestones.instance.admin_thread import (
    WATCH_INTERVAL_MS,
    AskBounds,
    AskTopicIds,
    NewSources,
    TopicIds,
)
from tests.milestones.fakes import CHANGELOG, IN, A, passing
from tests.milestones.instance.keeping import Keeping, ask


@pytest.mark.parametrize("change", [{"ids": {CHANGELOG: 2}}, {"gone": True}, {"count": 5}])
def test_a_changelog_that_is_deleted_or_made_anew_ends_the_application_before_its_state_is_lost(change: Any) -> None:
    """Where a broker makes topics by itself it would come back empty, and state would go with the next move."""
    k = Keeping()
    assert k.look() == []
    k.cluster.ids |= change.get("ids", {})
    k.cluster.counts[CHANGELOG] = change.get("count", 2)
    if "gone" in change:
        del k.cluster.counts[CHANGELOG]
        assert k.look() == [], "one broker may not know it for a moment"
    assert f"internal topic {CHANGELOG}" in k.look()[0]
    assert isinstance(k.errors[0], SourceTopicError)
    assert "milestones reset" in str(k.errors[0])


def test_nobody_restores_from_a_changelog_that_was_made_anew_between_two_looks() -> None:
    """A thread that has lost its tasks joins again, and the group's leader makes the topics that aren't there."""
    k = Keeping()
    k.step(before := AskBounds(A, frozenset({TopicPartition(CHANGELOG, 0)}), Mailbox(1), topic_ids=True))
    assert before.reply_to.drain()[0].error is None
    k.cluster.ids[CHANGELOG] = 2
    k.step(after := AskBounds(A, frozenset({TopicPartition(CHANGELOG, 0)}), Mailbox(1), topic_ids=True))
    (answer,) = after.reply_to.drain()
    assert isinstance(answer.error, SourceTopicError)
    assert f"internal topic {CHANGELOG} was deleted and made anew" in str(k.errors[0])


def test_a_changelog_that_is_deleted_before_the_first_look_is_missed_once_the_application_runs() -> None:
    k = Keeping()
    del k.cluster.counts[CHANGELOG]
    k.runs = False
    assert k.look() == k.look() == [], "it isn't made yet"
    k.runs = True
    k.look()
    assert f"internal topic {CHANGELOG} was deleted" in k.look()[0]


def test_only_topics_that_are_named_are_looked_at_unless_there_is_a_pattern() -> None:
    k = Keeping()
    k.look()
    assert k.cluster.looked == [{"in", CHANGELOG}]
    assert k.cluster.looked_at_all == 0
    k = Keeping(topology=passing((re.compile("in.*"),)))
    k.look()
    assert k.cluster.looked_at_all == 1


def test_the_first_topic_that_a_pattern_ever_matches_is_news() -> None:
    k = Keeping(passing((re.compile("new.*"),)))
    assert k.look() == []
    k.cluster.counts["new"] = 1
    k.look()
    k.look()
    assert k.errors == [NewSources(frozenset({"new"}))]


def test_a_topic_that_comes_up_after_the_start_and_before_the_first_look_is_news() -> None:
    """The group may have been assigned without it."""
    k = Keeping(passing((re.compile("in.*"),)), sources=frozenset({"in"}))
    k.cluster.counts["in-2"] = 1
    k.look()
    k.look()
    assert k.errors == [NewSources(frozenset({"in-2"}))]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([2, 3], "source topic in had 2 partitions and has 3 now"),
        ([2, None, None], "source topic in was deleted"),
        ([2, None, 2, None], None),
    ],
    ids=["more partitions", "missed by two looks in a row", "not known to brokers for a moment"],
)
def test_a_source_topic_that_changes_is_an_error_that_says_what_to_do(counts: Any, told: str | None) -> None:
    k = Keeping()
    for count in counts:
        assert k.errors == []
        k.cluster.counts = {CHANGELOG: 2} | ({} if count is None else {"in": count})
        k.look()
    assert [f"{told}" in str(error) and "milestones reset" in str(error) for error in k.errors] == [True] * bool(told)


def test_a_source_topic_that_was_made_anew_between_two_looks_ends_the_application_and_the_error_names_the_way() -> None:
    k = Keeping()
    assert k.look() == []
    k.cluster.ids["in"] = 2
    (told,) = k.look()
    assert "source topic in was deleted and made anew under the running application" in told
    assert "milestones reset --only in --execute" in told
    assert isinstance(k.errors[0], SourceTopicError)


def test_a_topic_of_a_pattern_that_was_made_anew_ends_the_application() -> None:
    k = Keeping(passing((re.compile("in.*"),)), sources=frozenset({"in"}))
    assert k.look() == []
    k.cluster.ids["in"] = 2
    assert ["made anew" in told for told in k.look()] == [True]


def test_nobody_is_told_where_a_source_begins_that_was_made_anew_between_two_looks() -> None:
    """A position out of range isn't the retention's doing then."""
    k = Keeping()
    k.look()
    k.cluster.ids["in"] = 2
    k.step(question := ask())
    (answer,) = question.reply_to.drain()
    assert isinstance(answer.error, SourceTopicError)
    assert "made anew" in str(k.errors[0])


def test_no_global_store_is_read_from_a_topic_that_was_made_anew_between_two_looks() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.global_table("rows")
    k, rows = Keeping(builder.build()), frozenset({TopicPartition("rows", 0)})
    k.cluster.counts["rows"] = 1
    k.step(AskBounds(GLOBAL, rows, Mailbox(1), topic_ids=True))
    k.cluster.ids["rows"] = 2
    k.step(after := AskBounds(GLOBAL, rows, Mailbox(1), topic_ids=True))
    (answer,) = after.reply_to.drain()
    assert isinstance(answer.error, SourceTopicError)
    assert "topic rows of a global store was deleted and made anew" in str(k.errors[0])


def ask_ids(known: Mapping[TopicPartition, str], *topics: str) -> AskTopicIds:
    numbers = {at: number_of(id) for at, id in known.items()}
    return AskTopicIds(4, frozenset(topics or {"in"}), numbers, Mailbox(1))


FIRST, SECOND = str(Uuid(7, 1)), str(Uuid(7, 2))


@pytest.mark.parametrize("known", [{}, {IN: FIRST}], ids=["nothing is known", "it is the topic that is known"])
def test_a_task_learns_the_id_of_its_topic(known: Mapping[TopicPartition, str]) -> None:
    k, question = Keeping(), ask_ids(known)
    k.step(question)
    assert question.reply_to.drain() == [TopicIds(4, {"in": number_of(FIRST)})]
    assert k.errors == []


@pytest.mark.parametrize(("topic", "way"), [("in", "reset --only in --execute"), (CHANGELOG, "reset the application")])
def test_offsets_of_a_former_topic_end_the_application_before_anything_is_read(topic: str, way: str) -> None:
    k, question = Keeping(), ask_ids({TopicPartition(topic, 0): SECOND}, topic)
    k.step(question)
    (answer,) = question.reply_to.drain()
    assert (answer.ids, answer.error) == ({}, k.errors[0])
    assert f"topic {topic} was deleted and made anew: the committed offsets belong to the former topic" in str(k.errors)
    assert way in str(k.errors[0])


def test_a_topic_that_is_made_anew_after_a_task_has_begun_is_seen_at_the_first_look() -> None:
    k = Keeping()
    k.step(ask_ids({}))
    k.cluster.ids["in"] = 2
    assert ["made anew" in told for told in k.look()] == [True]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_a_question_for_ids_that_has_no_answer_is_answered_by_its_error(code: int) -> None:
    k, question = Keeping(), ask_ids({})
    k.cluster.error = KafkaException(KafkaError(code))
    k.step(question)
    assert question.reply_to.drain()[0].error is k.cluster.error
    assert k.errors == []


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again() -> None:
    k, question = Keeping(), ask_ids({}, "new")
    k.step(question)
    (answer,) = question.reply_to.drain()
    assert "a broker doesn't know the topic new" in str(answer.error)
    assert k.errors == []


def test_questions_for_ids_that_come_together_share_a_request() -> None:
    k = Keeping()
    k.step(cleans=False)
    questions = [ask_ids({}) for _ in range(50)]
    looks = len(k.cluster.looked)
    k.step(questions)
    assert all(question.reply_to.drain() for question in questions)
    assert len(k.cluster.looked) == looks + 1


def test_topics_of_others_may_change() -> None:
    k = Keeping()
    k.look()
    k.cluster.counts = {"in": 2, CHANGELOG: 2, "new": 1}
    assert k.look() == []
    assert k.look() == []


def test_a_cluster_that_does_not_answer_is_looked_at_later() -> None:
    k = Keeping()
    k.look()
    k.cluster.error = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    assert k.look() == []
    k.cluster.error = None
    k.cluster.counts["in"] = 3
    assert len(k.look()) == 1


def test_topics_are_looked_at_every_few_seconds_only() -> None:
    k = Keeping()
    k.step()
    k.cluster.counts["in"] = 3
    k.step(ms=WATCH_INTERVAL_MS - 1)
    assert k.errors == []
    k.step(ms=1)
    assert len(k.errors) == 1
