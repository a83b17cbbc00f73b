"""What becomes of the topics of global stores while an instance runs."""

from __future__ import annotations

import pytest

from milestones.common.kafka.topic_metadata import Described
from milestones.instance.global_watch import GlobalWatch, uncompacted

ROWS = Described(4, "id-1")


def looks(*found: dict[str, Described]) -> list[str]:
    """What a watch of `rows` says about these looks."""
    watch = GlobalWatch(("rows",))
    return [str(news) for look in found for news in watch.look(look)]


def test_a_topic_that_stays_is_no_news_and_others_are_none() -> None:
    assert looks({"rows": ROWS}, {"rows": ROWS, "other": ROWS}, {"rows": ROWS, "other": Described(9, "id-9")}) == []


def test_a_topic_that_one_look_misses_is_there() -> None:
    assert looks({"rows": ROWS}, {}, {"rows": ROWS}, {}) == []


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ([{}, {}], "topic rows of a global store was deleted under the running application: create it again"),
        ([{"rows": Described(4, "id-2")}], "was deleted and made anew under the running application: restart it"),
        ([{"rows": Described(5, "id-1")}], "had 4 partitions and has 5 now, so keys have moved between them: restart"),
    ],
)
def test_a_topic_that_changes_is_an_error_that_says_what_to_do(later: list[dict[str, Described]], told: str) -> None:
    (news,) = looks({"rows": ROWS}, *later)
    assert told in news


def test_topics_without_an_id_are_compared_by_their_partitions() -> None:
    assert looks({"rows": Described(4, None)}, {"rows": ROWS}) == []


def test_topics_that_lose_records_are_warned_of() -> None:
    compacted, deleted = {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}
    assert uncompacted({"a": compacted, "b": {}}) is None
    assert (uncompacted({"a": compacted, "c": deleted, "b": {"cleanup.policy": "delete"}}) or "").startswith(
        "global stores are made of b, c, from which old records are deleted"
    )
