"""Topics that were made anew while an application was stopped that doesn't begin them at their first records."""

from __future__ import annotations

from pathlib import Path

import pytest

from milestones.common.errors import SourceTopicError
from milestones.common.kafka.topic_metadata import Described
from milestones.common.records import TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.instance.topic_ids import refuse_skipped

FOUND = {"in": Described(2, "new")}


def test_a_topic_of_another_id_of_which_not_all_is_committed_is_refused() -> None:
    with pytest.raises(SourceTopicError, match="in was deleted and made anew while the application was stopped"):
        refuse_skipped(FOUND, {"in": "former"}, {TopicPartition("in", 0)})


@pytest.mark.parametrize("before", [{}, {"in": "new"}, {"other": "former"}])
def test_a_first_start_and_the_same_topic_are_as_they_should_be(before: dict[str, str]) -> None:
    refuse_skipped(FOUND, before, ())


def test_where_all_is_committed_that_says_where_to_begin() -> None:
    refuse_skipped(FOUND, {"in": "former"}, {TopicPartition("in", 0), TopicPartition("in", 1)})


def test_brokers_that_give_topics_no_id_are_taken_as_they_are() -> None:
    refuse_skipped({"in": Described(1, None)}, {"in": "former"}, {TopicPartition("in", 0)})


def test_the_state_directory_knows_the_topics_of_the_last_start(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path, "app")
    first.record_sources({"in": "former"})
    first.record_ids(static={"one"})
    first.close()
    second = StateDirectory(tmp_path, "app")
    assert second.source_ids == {"in": "former"}
    second.close()


def test_the_state_directory_knows_the_topics_that_the_application_has_made(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path, "app")
    first.record_internal({"app-store-changelog": "id"})
    first.record_sources({"in": "former"})
    first.close()
    second = StateDirectory(tmp_path, "app")
    assert second.internal_ids == {"app-store-changelog": "id"}
    second.close()
