"""A commit that has no answer yet stops nobody; what may be sent beside it, and what waits."""

from __future__ import annotations

from typing import Any

import pytest

from milestones import StreamsBuilder, serdes
from milestones.common.kafka.batch_isolation import BatchIsolation
from milestones.common.kafka.membership import CommitRetriableError, JoinNeeded, Lost
from milestones.common.records import TaskId
from milestones.parts.transaction import CommitStage
from tests.milestones.fakes import CHANGELOG
from tests.milestones.m5_committed_collector.collecting import (
    ALOS,
    DEAD,
    CollectorWorld,
    RunningCollector,
    answer,
    committing,
    withhold,
)

CALLS = pytest.mark.parametrize("call", ["flush", "send_offsets", "commit"])


@CALLS
def test_processing_goes_on_and_nothing_of_the_next_interval_is_sent_before_the_end(call: str) -> None:
    r = committing(call)
    before = len(r.tries[-1].outputs)
    r.feed("b", "c", steps=5)
    r.feed("x", partition=1, steps=5)
    assert sorted(r.world.user_code.seen) == ["a", "b", "c", "x"]
    assert len(r.tries[-1].outputs) == before
    answer(r)
    assert (r.offset(), r.sent()) == (1, [("k", 1)])
    r.until_committed(3, 1)
    assert sorted(r.sent()) == [("k", 1), ("k", 1), ("k", 2), ("k", 3)]
    assert sorted(r.world.user_code.seen) == ["a", "b", "c", "x"]


def test_at_least_once_sinks_flow_during_the_offset_commit_and_changelog_records_wait() -> None:
    r = committing("OffsetCommit", processing_guarantee=ALOS)
    r.feed("b", "c", steps=5)
    assert r.sent() == [("k", 1), ("k", 2), ("k", 3)]
    assert r.world.written() == [("k", 1)]
    answer(r)
    r.until_committed(3)
    assert r.world.written() == [("k", 1), ("k", 3)]


def test_at_least_once_changelog_records_follow_the_outputs_that_kafka_has() -> None:
    r = committing("flush", processing_guarantee=ALOS)
    assert (r.sent(), r.world.written()) == ([("k", 1)], [])
    answer(r)
    r.until_committed(1)
    assert r.world.written() == [("k", 1)]


def test_a_changelogs_offset_is_that_of_its_own_interval() -> None:
    r = committing("OffsetCommit", processing_guarantee=ALOS)
    r.feed("b", steps=5)
    answer(r)
    r.step(2)
    assert r.world.state.offset(TaskId(0, 0)) == 1


@pytest.mark.parametrize("call", ["flush", "OffsetCommit"])
def test_at_least_once_nothing_is_processed_twice_however_late_an_answer_is(call: str) -> None:
    r = committing(call, processing_guarantee=ALOS)
    r.feed("b", steps=5)
    answer(r)
    r.until_committed(2)
    assert r.sent() == [("k", 1), ("k", 2)]
    assert r.world.user_code.seen == ["a", "b"]


def test_an_offset_commit_that_fails_is_made_again_with_the_same_offsets_and_nothing_is_sent_twice() -> None:
    r = committing("OffsetCommit", processing_guarantee=ALOS)
    r.world.member.commit_errors.append(CommitRetriableError("no answer"))
    r.feed("b", steps=5)
    answer(r)
    r.until_committed(1)
    r.until_committed(2)
    assert r.sent() == [("k", 1), ("k", 2)]
    assert r.world.written() == [("k", 1), ("k", 2)]
    assert r.tasks.roll_backs.count == 0


def test_an_interval_of_which_the_engines_know_nothing_yet_is_followed_by_no_other() -> None:
    r = committing("commit")
    r.feed("b", steps=3)
    r.world.workers.stuck = True
    answer(r)
    r.step(5, ms=100)
    assert (r.offset(), r.world.state.offset(TaskId(0, 0))) == (1, None)
    r.world.workers.stuck = False
    r.until_committed(2)


def test_the_member_joins_while_the_end_of_a_transaction_has_no_answer() -> None:
    r = committing("commit")
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"))
    assert len(r.world.member.joins) == joins + 1


def resolving(**settings: Any) -> RunningCollector:
    """A thread whose transaction's end has failed; the group doesn't answer what is committed."""
    r = committing("commit", **settings)
    r.world.producer.fail("commit", DEAD)
    r.world.member.holds = True
    r.world.producer.withheld.clear()
    r.until(lambda: r.loop._register.step is CommitStage.RESOLVING)
    return r


def group_answers(r: RunningCollector) -> None:
    r.world.member.holds = False
    r.world.member.answer()


def test_the_member_does_not_join_while_the_group_is_asked_how_a_transaction_ended() -> None:
    r = resolving()
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"), steps=5)
    assert len(r.world.member.joins) == joins
    group_answers(r)
    r.until(lambda: len(r.world.member.joins) > joins)
    assert (r.offset(), r.sent()) == (1, [("k", 1)])


def test_who_lost_the_membership_waits_until_it_is_known_how_a_transaction_ended() -> None:
    r = resolving()
    r.hear(Lost("session timeout"), steps=3)
    assert r.tasks.owned
    group_answers(r)
    r.until(lambda: not r.tasks.owned)
    assert not r.commits.under_way


def test_at_least_once_the_member_does_not_join_during_an_offset_commit() -> None:
    r = committing("OffsetCommit", processing_guarantee=ALOS)
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"), steps=5)
    assert (len(r.world.member.joins), r.offset()) == (joins, None)
    answer(r)
    r.until(lambda: len(r.world.member.joins) > joins)
    assert r.offset() == 1


def failed(**settings: Any) -> RunningCollector:
    """A thread whose commit has failed, and is to be made once more."""
    r = committing("OffsetCommit", processing_guarantee=ALOS, **settings)
    r.world.member.commit_errors.append(CommitRetriableError("no answer"))
    r.feed("b", steps=5)
    answer(r)
    assert r.loop._register.stage is CommitStage.RETAINED
    return r


def test_before_the_member_joins_a_failed_commit_is_made_and_then_what_came_since() -> None:
    r = failed()
    joins = len(r.world.member.joins)
    r.hear(JoinNeeded("a test"), steps=1)
    r.until(lambda: len(r.world.member.joins) > joins)
    assert r.offset() == 2


def test_who_lost_the_membership_does_not_wait_for_a_failed_commit() -> None:
    r = failed()
    r.hear(Lost("session timeout"), steps=1)
    assert (r.tasks.owned, r.offset()) == (frozenset(), None)


def test_a_producer_that_isolates_batches_sends_nothing_during_an_offset_commit() -> None:
    """It is replaced at the end, with all that it has."""
    r = RunningCollector(processing_guarantee=ALOS)
    r.run(0, 1)
    r.world.producer.isolation = BatchIsolation()
    withhold(r, "OffsetCommit")
    r.feed("a", steps=10, ms=5)
    r.until(lambda: r.loop._register.step is CommitStage.COMMITTING_OFFSETS)
    r.feed("b", steps=5)
    assert r.sent() == [("k", 1)]
    answer(r)
    r.until_committed(2)
    assert r.sent() == [("k", 1), ("k", 2)]


def test_one_changelog_record_per_key_and_interval_and_every_update_is_emitted() -> None:
    r = RunningCollector(cached=True, statestore_cache_max_bytes=10_000_000)
    r.run(0)
    for interval in range(2):
        r.feed("v", "v", "v", steps=3)
        r.until_committed(3 * (interval + 1))
    assert r.world.written() == [("k", 3), ("k", 6)]
    assert r.sent() == [("k", number) for number in range(1, 7)]


def test_an_aggregation_emits_each_update_and_logs_the_last_one_however_large_the_cache_is() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    lines.group_by_key().count("counts").to_stream().to("out", key=serdes.STRING, value=serdes.LONG)
    r = RunningCollector(CollectorWorld(builder.build(), commit_interval_ms=100, statestore_cache_max_bytes=10_000_000))
    r.run(0)
    r.feed("v", "v", "v", steps=3)
    r.until_committed(3)
    assert r.sent() == [("k", 1), ("k", 2), ("k", 3)]
    assert len(r.tries[0].outputs) == 3 + 1


def test_a_changelogs_record_has_the_time_of_its_keys_last_write() -> None:
    r = RunningCollector()
    r.run(0)
    log = r.world.logs[next(iter(r.world.consumer.positions))]
    log.add("v", timestamp=5_000)
    log.add("v", timestamp=4_000)
    r.until_committed(2)
    (record,) = r.tries[0].to(CHANGELOG)
    assert record.timestamp == 4_000


def test_a_commit_cuts_a_task_before_the_call_that_it_is_in() -> None:
    r = RunningCollector()
    r.run(0)
    seen: list[int | None] = []

    def commit_meanwhile(record: Any) -> None:
        if record.value == "long":
            for _ in range(30):
                r.step(ms=20)
            seen.append(r.offset())

    r.world.user_code.at = commit_meanwhile
    r.feed("a", "long")
    r.until(lambda: seen)
    assert seen == [1]
    r.until_committed(2)
    assert r.world.user_code.seen == ["a", "long"]
