"""Where a partition's history begins, and what is refused: without Kafka."""

from __future__ import annotations

import pytest

from milestones.common.errors import MilestonesError
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.archive import IN_KAFKA, ArchiveError
from milestones.pipeline.backfill.beginning import Beginning, Range, beginning, check_join, check_topic

AT = TopicPartition("orders", 0)
URL = "s3://history"


def begin(committed: int | None, archived: Range | None, kafka: Range, history: str = URL) -> Beginning:
    return beginning(AT, committed, archived, kafka, history, "app")


@pytest.mark.parametrize(
    ("committed", "archived", "kafka", "found"),
    [
        (None, (0, 10), (5, 20), Beginning(0, archived=10)),
        (None, None, (0, 20), Beginning(0)),
        (7, (0, 10), (5, 20), Beginning(7, archived=3)),
        (10, (0, 10), (5, 20), Beginning(10)),
        (20, None, (5, 20), Beginning(20)),
        (None, (20, 35), (30, 40), Beginning(20, archived=15, missing=20)),
    ],
)
def test_a_group_goes_on_where_it_is_else_begins_with_the_archive_else_with_kafka(
    committed: int | None, archived: Range | None, kafka: Range, found: Beginning
) -> None:
    assert begin(committed, archived, kafka) == found


def test_without_an_archive_it_begins_with_kafka_and_what_nobody_has_is_told() -> None:
    assert begin(None, None, (0, 20), IN_KAFKA) == Beginning(0)
    assert begin(None, None, (30, 40), IN_KAFKA) == Beginning(30, missing=30)


@pytest.mark.parametrize(
    ("committed", "archived", "kafka", "why"),
    [
        (None, None, (30, 40), "has no archive of orders-0, and Kafka begins at offset 30"),
        (12, None, (30, 40), "group app is at 12, and Kafka begins at 30"),
        (12, (0, 10), (30, 40), "group app is at 12, and Kafka begins at 30"),
        (12, (20, 35), (30, 40), "begins at offset 20, and the group app is at 12"),
        (50, None, (0, 40), "made anew"),
    ],
)
def test_records_that_are_gone_are_refused(
    committed: int | None, archived: Range | None, kafka: Range, why: str
) -> None:
    with pytest.raises(ArchiveError if committed is None else MilestonesError, match=why):
        begin(committed, archived, kafka)


@pytest.mark.parametrize(("archived", "first", "end"), [(10, 0, 20), (10, 10, 10), (10, 10, 20)])
def test_an_archive_that_kafka_goes_on_from_is_fine(archived: int, first: int, end: int) -> None:
    check_join(AT, archived, first, end, "url")


def test_an_archive_that_kafka_does_not_go_on_from_is_an_error() -> None:
    with pytest.raises(ArchiveError, match="in neither"):
        check_join(AT, 10, 11, 20, "url")
    with pytest.raises(ArchiveError, match="made anew"):
        check_join(AT, 10, 0, 9, "url")


@pytest.mark.parametrize("archived", [frozenset(), frozenset({"a"})])
@pytest.mark.parametrize("kafka", ["a", None])
def test_an_archive_of_the_topic_that_kafka_has_or_of_one_that_nobody_knows_is_fine(
    archived: frozenset[str], kafka: str | None
) -> None:
    """Older releases, and brokers older than Kafka 2.8, tell no id."""
    check_topic(AT, archived, kafka, "url")


@pytest.mark.parametrize("archived", [frozenset({"b"}), frozenset({"a", "b"})])
def test_an_archive_of_another_topic_of_the_name_is_an_error(archived: frozenset[str]) -> None:
    with pytest.raises(ArchiveError, match=r"of another topic than the one that Kafka has now.* made anew"):
        check_topic(AT, archived, "a", "url")
