"""Where a partition's history begins, and what is refused: without Kafka."""

from __future__ import annotations

import pytest

from milestones.common.errors import MilestonesError
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.archive import IN_KAFKA, ArchiveError
from milestones.pipeline.backfill.beginning import Beginning, Range, beginning, check_join

AT = TopicPartition("orders", 0)
URL = "s3://history"


def begin(committed: int | None, archived: Range | None, kafka: Range, history: str = URL) -> Beginning:
    return beginning(AT, committed, archived, kafka, history, "app")


def test_a_group_that_has_not_begun_begins_with_the_archive_else_with_kafka() -> None:
    assert begin(None, (0, 10), (5, 20)) == Beginning(0, archived=10)
    assert begin(None, None, (0, 20)) == Beginning(0)
    assert begin(None, None, (0, 20), IN_KAFKA) == Beginning(0)


def test_a_group_that_has_begun_goes_on_where_it_is() -> None:
    assert begin(7, (0, 10), (5, 20)) == Beginning(7, archived=3)
    assert begin(10, (0, 10), (5, 20)) == Beginning(10)
    assert begin(20, None, (5, 20)) == Beginning(20)


def test_a_beginning_that_nobody_has_is_told() -> None:
    assert begin(None, None, (30, 40), IN_KAFKA) == Beginning(30, missing=30)
    assert begin(None, (20, 35), (30, 40)) == Beginning(20, archived=15, missing=20)


def test_a_partition_that_the_archive_should_have_is_refused() -> None:
    with pytest.raises(ArchiveError, match="has no archive of orders-0, and Kafka begins at offset 30"):
        begin(None, None, (30, 40))


@pytest.mark.parametrize("archived", [None, (0, 10)])
def test_records_that_are_gone_between_the_group_and_kafka_are_refused(archived: Range | None) -> None:
    with pytest.raises(MilestonesError, match="group app is at 12, and Kafka begins at 30"):
        begin(12, archived, (30, 40))


def test_records_that_are_gone_between_the_group_and_the_archive_are_refused() -> None:
    with pytest.raises(MilestonesError, match="begins at offset 20, and the group app is at 12"):
        begin(12, (20, 35), (30, 40))


def test_a_group_that_is_beyond_the_end_is_refused() -> None:
    with pytest.raises(MilestonesError, match="made anew"):
        begin(50, None, (0, 40))


@pytest.mark.parametrize(("archived", "first", "end"), [(10, 0, 20), (10, 10, 10), (10, 10, 20)])
def test_an_archive_that_kafka_goes_on_from_is_fine(archived: int, first: int, end: int) -> None:
    check_join(AT, archived, first, end, "url")


def test_an_archive_that_kafka_does_not_go_on_from_is_an_error() -> None:
    with pytest.raises(ArchiveError, match="in neither"):
        check_join(AT, 10, 11, 20, "url")
    with pytest.raises(ArchiveError, match="made anew"):
        check_join(AT, 10, 0, 9, "url")
