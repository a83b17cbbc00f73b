"""A source's pattern means the topics that a consumer's subscription to it would."""

from __future__ import annotations

import pytest

from milestones.common.patterns import matches, matching


def test_a_pattern_matches_whole_names() -> None:
    assert matching(["in.*", "other"], ["in", "in-2", "main", "other", "others"]) == {"in", "in-2", "other"}


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_no_pattern_matches_kafkas_own_topics(topic: str) -> None:
    assert not matches(".*", topic)
    assert not matches(topic, topic)


def test_a_users_topic_may_begin_with_underscores_as_in_kafka() -> None:
    assert matching([".*"], ["__mine", "_schemas"]) == {"__mine", "_schemas"}


def test_without_patterns_nothing_matches() -> None:
    assert matching([], ["in"]) == set()
