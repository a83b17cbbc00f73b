"""Finds where the history of an input partition begins for a run, and checks that it has no gap. Pure.

    nothing committed     the archive's beginning, else Kafka's: whatever the reset policy says
    something committed   there: an earlier run, or live instances, have been that far

*Guarantees*: from the beginning on, archive and Kafka together have no gap. If nothing was committed, records before
the beginning that are in neither are reported (`missing`): they were never archived, and can't be read any more.
*Assumes*: Kafka's bounds were asked for after the committed offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milestones.common.errors import MilestonesError, SourceTopicError
from milestones.common.kafka.topic_metadata import Described
from milestones.common.records import TopicPartition
from milestones.pipeline.backfill.archive import IN_KAFKA, ArchiveError, OtherTopicError

Range = tuple[int, int]
"""The first offset, and the end (exclusive)."""


@dataclass(frozen=True)
class Beginning:
    """The beginning of one partition. `archived`: the offsets to be read from the archive. `missing`: the offsets
    before `position` that neither the archive nor Kafka has.
    """

    position: int
    archived: int = 0
    missing: int = 0


def beginning(
    at: TopicPartition, committed: int | None, archived: Range | None, kafka: Range, history: str, group: str
) -> Beginning:
    """Find the beginning of a partition's history. `archived`: the offsets that the archive at `history` has. Raises
    `ArchiveError` or `MilestonesError` if records in between are gone.
    """
    if archived is not None and (committed is None or committed < archived[1]):
        return _in_archive(at, committed, archived, kafka, history, group)
    first, end = kafka
    if committed is None:
        if first > 0 and history != IN_KAFKA:
            raise ArchiveError(
                f"{history} has no archive of {at}, and Kafka begins at offset {first}: the records before that are in "
                "neither; find their archive, or begin one with what Kafka has (`milestones spark archive`)"
            )
        return Beginning(first, missing=first)
    if committed < first:
        raise MilestonesError(
            f"the group {group} is at {committed}, and Kafka begins at {first}: the records of {at} between are gone; "
            "find an archive that has them, or reset the application and begin anew with the present records"
        )
    if committed > end:
        raise SourceTopicError(
            f"the group {group} is at {committed}, and {at} has only {end}: the topic was deleted and made anew since; "
            "reset the application and begin anew"
        )
    return Beginning(committed)


def _in_archive(
    at: TopicPartition, committed: int | None, archived: Range, kafka: Range, history: str, group: str
) -> Beginning:
    first, end = archived
    check_join(at, end, *kafka, history)
    if committed is None:
        return Beginning(first, archived=end - first, missing=first)
    if committed < first:
        raise MilestonesError(
            f"the archive of {at} in {history} begins at offset {first}, and the group {group} is at {committed}: the "
            "records between are missing; find their archive"
        )
    return Beginning(committed, archived=end - committed)


def check_topic(at: TopicPartition, archived: frozenset[str], kafka: str | None, url: str) -> None:
    """Raise an error unless the archive's topic ids are the id of the topic that Kafka has now. `OtherTopicError`."""
    if kafka is not None and archived - {kafka}:
        raise OtherTopicError(
            f"the archive of {at} in {url} is of another topic than the one that Kafka has now: the topic was deleted "
            "and made anew since; begin a new archive elsewhere"
        )


def check_topics(
    archived: Mapping[TopicPartition, frozenset[str]], found: Mapping[str, Described], url: str
) -> None:
    """Call `check_topic` for all partitions of an archive. `found`: the topics as Kafka describes them."""
    for at, ids in archived.items():
        if at.topic in found:
            check_topic(at, ids, found[at.topic].id, url)


def check_join(at: TopicPartition, archived: int, first: int, end: int, url: str) -> None:
    """Raise an error unless Kafka's records, from `first` to `end`, follow an archive that ends at `archived` without a
    gap. `ArchiveError`.
    """
    if archived < first:
        raise ArchiveError(
            f"the archive of {at} in {url} ends at offset {archived}, and Kafka begins at {first}: the records between "
            "are in neither; begin a new archive elsewhere, or find them in another one"
        )
    if archived > end:
        raise OtherTopicError(
            f"the archive of {at} in {url} ends at offset {archived}, and Kafka has only {end}: the topic was deleted "
            "and made anew since; begin a new archive elsewhere"
        )
