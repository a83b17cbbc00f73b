"""Which of the application's own topics are gone at a start, by what its last commits and the disk name."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import Described, TopicsSeen, number_of
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.task.metadata import OffsetMetadata, written_mark
from milestones.instance.application import Application
from milestones.instance.lost_topics import lost, refuse_deleted
from tests.milestones.fakes import CHANGELOG, World, counting


def commit(*ids: str | None, topic: str = CHANGELOG) -> str:
    """The metadata of a commit that names these ids of the topic; None: whichever comes."""
    marks = frozenset(written_mark(topic, None if id is None else number_of(id)) for id in ids)
    return OffsetMetadata(5, 1, "tx", written=marks).encode()


PLAIN = OffsetMetadata(5, 1, "tx").encode()
"""Of a release that names no internal topics."""


@pytest.mark.parametrize(
    ("now", "on_disk", "committed", "is_lost"),
    [
        (None, None, [], False),  # a first start
        (None, None, [PLAIN], False),  # a store that is new
        (None, None, [commit("id", topic="another")], False),
        ("id", None, [commit("id")], False),
        ("id", "id", [], False),
        ("id", "id", [PLAIN], False),
        (None, None, [commit("id")], True),
        (None, "id", [], True),
        (None, "id", [PLAIN], True),
        ("new", None, [commit("id")], True),
        ("new", "id", [], True),
        ("new", None, [commit("new"), commit("id")], True),  # of one task
        ("new", "id", [commit("new")], False),  # somebody has begun it anew; the disk is of before
        ("new", "id", [commit(None)], False),  # a reset of this topic
        (None, "id", [commit(None)], False),
        (None, "id", ["", ""], False),  # a reset of the application
        (None, "id", ["", PLAIN], True),
    ],
)
def test_a_topic_is_lost_where_the_last_commits_or_else_the_disk_name_another_one(
    now: str | None, on_disk: str | None, committed: list[str], is_lost: bool
) -> None:
    found = {} if now is None else {CHANGELOG: Described(1, now)}
    known = {} if on_disk is None else {CHANGELOG: on_disk}
    assert lost([CHANGELOG], found, known, committed) == ([CHANGELOG] if is_lost else [])


def test_brokers_that_give_topics_no_id_are_taken_as_they_are() -> None:
    assert lost([CHANGELOG], {CHANGELOG: Described(1, None)}, {CHANGELOG: "id"}, [commit("id")]) == []


ALIKE = "app-store-708-changelog", "app-store-932-changelog"
"""Topics whose marks begin alike."""


def test_no_topic_is_taken_for_lost_because_its_mark_begins_like_that_of_another_one() -> None:
    one, other = (written_mark(topic, number_of("id")) for topic in ALIKE)
    assert one == other
    both = {topic: Described(1, id) for topic, id in zip(ALIKE, ("first", "second"), strict=True)}
    committed = [commit(both[topic].id, topic=topic) for topic in ALIKE]
    assert lost(ALIKE, both, {}, committed) == []
    assert lost(ALIKE, both, {}, committed[:1]) == [], "the other one is new"
    gone = {topic: told for topic, told in both.items() if topic != ALIKE[0]}
    assert ALIKE[0] in lost(ALIKE, gone, {}, committed)


class Start:
    """A start of an application whose cluster gives these answers to one look after the other."""

    def __init__(self, *looks: dict[str, Described], forbidden: Collection[str] = ()) -> None:
        self.looks, self.forbidden = list(looks), frozenset(forbidden)
        self.asked = self.rests = 0
        self.committed = {TopicPartition("in", 0): OffsetAndMetadata(3, commit("id"))}
        self.application: Application = World(counting()).context.application

    def begin(self, on_disk: dict[str, str]) -> dict[str, str]:
        def committed() -> Any:
            self.asked += 1
            return self.committed

        def rest() -> None:
            self.rests += 1

        def look(_: object) -> TopicsSeen:
            return TopicsSeen(self.looks.pop(0), self.forbidden)

        return refuse_deleted(self.application, ["in"], look, committed, on_disk, rest)


THERE = {CHANGELOG: Described(1, "id")}


def test_a_start_whose_disk_knows_all_topics_asks_for_nothing_more() -> None:
    start = Start(THERE)
    assert start.begin({CHANGELOG: "id"}) == {CHANGELOG: "id"}
    assert start.asked == 0


def test_a_topic_that_one_look_misses_is_looked_for_again() -> None:
    start = Start({}, THERE)
    assert start.begin({CHANGELOG: "id"}) == {CHANGELOG: "id"}
    assert (start.asked, start.rests) == (1, 1)


def test_a_topic_that_two_looks_miss_is_lost() -> None:
    with pytest.raises(SourceTopicError, match=f"internal topic {CHANGELOG} was deleted while .* the state of store"):
        Start({}, {}).begin({})


def test_a_topic_that_is_another_one_needs_no_second_look() -> None:
    start = Start({CHANGELOG: Described(1, "new")})
    with pytest.raises(SourceTopicError, match=f"{CHANGELOG} was deleted and made anew while the application"):
        start.begin({})
    assert start.rests == 0


def test_a_topic_that_this_principal_may_not_see_is_not_taken_for_lost() -> None:
    assert Start({}, forbidden={CHANGELOG}).begin({CHANGELOG: "id"}) == {}


def test_offsets_of_topics_that_the_application_does_not_read_any_more_say_nothing() -> None:
    start = Start({})
    start.committed = {TopicPartition("a former input", 0): OffsetAndMetadata(3, commit("id"))}
    assert start.begin({}) == {}


def test_no_application_without_topics_of_its_own_is_asked_about() -> None:
    start = Start()
    start.application = SimpleNamespace(internal_topics=frozenset())  # type: ignore[assignment]
    assert start.begin({}) == {}
