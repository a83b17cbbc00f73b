"""When a thread has repartition topics purged and changelogs trimmed."""

from __future__ import annotations

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.instance.admin_thread import Purge
from milestones.instance.changelog_trim import Trim
from tests.milestones.fakes import IN
from tests.milestones.stream_thread.commits.scheduled import Scheduled

INTERNAL, CHANGELOG_AT = TopicPartition("app-x-repartition", 0), TopicPartition("app-x-changelog", 0)


def purging() -> Scheduled:
    s = Scheduled(repartition_purge_interval_ms=1_000)
    s.world.context.application.__dict__["repartition_topics"] = frozenset({INTERNAL.topic})
    return s


def test_repartition_topics_are_purged_up_to_what_was_committed_and_no_other_topics() -> None:
    s = purging()
    s.offsets = {IN: OffsetAndMetadata(9), INTERNAL: OffsetAndMetadata(5)}
    s.after(100)
    s.offsets = {INTERNAL: OffsetAndMetadata(7)}
    s.after(100)
    assert s.world.requests.purges == []
    s.after(800)
    assert s.world.requests.purges == [Purge({INTERNAL: 7})]
    s.task.needed = False
    s.after(1_000)
    assert len(s.world.requests.purges) == 1


def test_a_purge_is_asked_for_once_per_interval() -> None:
    s = purging()
    asked = []
    for offset, ms in ((5, 1_000), (6, 100), (7, 899), (8, 1)):
        s.offsets = {INTERNAL: OffsetAndMetadata(offset)}
        s.after(ms)
        asked.append(len(s.world.requests.purges))
    assert asked == [1, 1, 1, 2]


def test_after_the_first_commit_a_changelog_is_trimmed_once_per_interval() -> None:
    s = purging()
    s.task.times = {CHANGELOG_AT: 5}
    asked = []
    for ms in (100, 100, 799, 1):
        s.after(ms)
        asked.append(len(s.world.requests.trims))
    assert asked == [1, 1, 1, 2]


def test_it_is_told_what_is_gone_of_changelogs_with_the_first_commit_and_with_each_purge() -> None:
    """Soon, as a changelog may be kept for too short a time; a store whose time stands still costs nothing."""
    s = purging()
    told = s.world.requests.trims
    s.after(100)
    assert told == []
    s.task.times = {CHANGELOG_AT: 5}
    s.after(900)
    assert told == [Trim({CHANGELOG_AT: 5})]
    s = purging()
    s.task.times = {CHANGELOG_AT: 5}
    s.after(100)
    assert s.world.requests.trims == [Trim({CHANGELOG_AT: 5})]


def test_a_purge_that_the_housekeeper_has_no_room_for_is_asked_for_later() -> None:
    s = purging()
    s.offsets = {INTERNAL: OffsetAndMetadata(5)}
    s.world.requests.full = True
    s.after(1_000)
    s.world.requests.full = False
    s.after(1_000)
    assert s.world.requests.purges == [Purge({INTERNAL: 5})]
