"""From the consumer into input buffers: where a task starts, what happens to lost offsets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from milestones.baseline.processing import InlineProcessing
from milestones.common.errors import KafkaUnreachableError, SourceTopicError, TimeoutExceededError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.retry import LATEST_MS, SOONEST_MS
from milestones.common.records import OffsetAndMetadata
from milestones.instance.admin_thread import Bounds
from milestones.stream_thread.inputs import COMMIT_AGAIN_MS
from tests.milestones.fakes import IN, A, passing, put
from tests.milestones.stream_thread.feeding import LEFT, RIGHT, Fed


def losing(**settings: Any) -> Fed:
    """Inputs whose task is at offset 1, in a log that begins with 3 by now."""
    f = Fed(**settings)
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.logs[IN].cut_to(3)
    return f


def test_a_task_starts_at_its_committed_offsets() -> None:
    f = Fed()
    put(f.world, 0, *"abcdef")
    assert f.start(4) == [f.task]
    assert f.world.consumer.positions == {IN: 4}
    assert f.task.input.position(IN) == 4


@pytest.mark.parametrize(("policy", "position"), [("earliest", 2), ("latest", 6)])
def test_a_partition_without_a_committed_offset_starts_where_the_reset_policy_says(policy: str, position: int) -> None:
    f = Fed(auto_offset_reset=policy)
    put(f.world, 0, *"abcdef")
    f.world.logs[IN].cut_to(2)
    assert f.start() == [f.task]
    f.commit()
    assert f.world.consumer.positions == {IN: position}


def aged(*ages_s: int, **settings: Any) -> Fed:
    """Inputs of a topic with records of these ages."""
    f = Fed(**settings)
    for age_s in ages_s:
        f.world.logs[IN].add("v", timestamp=f.world.clock.wall_ms() - age_s * 1_000)
    return f


@pytest.mark.parametrize("policy", [timedelta(hours=1), "by_duration:PT1H"])
def test_a_partition_may_start_with_the_records_of_the_last_hour(policy: Any) -> None:
    ages = 7_200, 3_601, 3_600, 1_800, 4_000
    f = aged(*ages, auto_offset_reset=policy)
    f.start()
    f.commit()
    assert f.world.consumer.positions == {IN: 2}
    one_source = aged(*ages, topology=passing(offset_reset=policy), auto_offset_reset="none")
    one_source.start()
    one_source.commit()
    assert one_source.world.consumer.positions == {IN: 2}


def test_a_partition_without_a_record_of_the_last_hour_starts_at_its_end() -> None:
    f = aged(7_200, 7_200, auto_offset_reset=timedelta(hours=1))
    assert f.start() == [f.task]
    assert f.task.commit_requested()
    f.commit()
    assert f.world.consumer.positions == {IN: 2}


def test_records_of_the_last_hour_that_are_gone_from_the_log_are_skipped() -> None:
    f = aged(1_800, 1_800, 1_800, auto_offset_reset=timedelta(hours=1))
    f.start(1)
    f.world.logs[IN].cut_to(2)
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: 2}


def test_where_a_partition_began_is_committed_before_its_first_record_is_read() -> None:
    """Else a crash, or a move, before the first commit would begin at the end again: what came meanwhile is skipped."""
    f = Fed(auto_offset_reset="latest")
    put(f.world, 0, *"abc")
    assert f.start() == [f.task]
    put(f.world, 0, *"de")
    assert f.inputs.holds
    assert not f.inputs.fetch(0)
    assert f.task.commit_requested()
    f.commit()
    assert not f.inputs.holds
    assert not f.task.commit_needed()
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 2


def test_a_roll_back_before_that_commit_changes_nothing_of_it() -> None:
    f = Fed(auto_offset_reset="latest")
    put(f.world, 0, *"abc")
    f.start()
    f.inputs.stop(f.task)
    f.task.roll_back()
    put(f.world, 0, *"de")
    f.start(3)
    assert f.inputs.holds
    assert f.task.commit_needed()
    f.commit()
    assert f.world.consumer.positions == {IN: 3}


def test_a_commit_that_failed_is_asked_for_again_after_a_pause() -> None:
    f = Fed(auto_offset_reset="latest")
    f.start()
    f.task.thaw(f.task.freeze())
    f.inputs.run_once()
    assert not f.task.commit_requested()
    f.world.clock.advance(COMMIT_AGAIN_MS)
    f.inputs.run_once()
    assert f.task.commit_requested()
    assert f.inputs.holds


@pytest.mark.parametrize("settings", [{"auto_offset_reset": "earliest"}, {"auto_offset_reset": "latest"}])
def test_a_task_that_begins_where_it_would_begin_again_waits_for_no_commit(settings: Any) -> None:
    f = Fed(**settings)
    put(f.world, 0, *"abc")
    f.start(*([1] if settings["auto_offset_reset"] == "latest" else []))
    assert not f.inputs.holds
    assert not f.task.commit_needed()
    assert f.world.consumer.assigned == {IN}


def test_a_task_that_is_stopped_before_that_commit_is_fed_no_more() -> None:
    f = Fed(auto_offset_reset="latest")
    f.start()
    f.inputs.stop(f.task)
    f.commit()
    assert not f.inputs.holds
    assert f.world.consumer.assigned == frozenset()


def test_records_that_were_lost_are_not_counted_as_lost_again_after_a_crash() -> None:
    f = Fed(auto_offset_reset="latest")
    put(f.world, 0, *"abcdef")
    f.world.logs[IN].cut_to(4)
    f.start(1)
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.task.commit_requested()


def test_the_reset_policy_none_fails_the_task_with_what_to_do() -> None:
    f = Fed(auto_offset_reset="none")
    assert f.start() == []
    with pytest.raises(SourceTopicError, match=r"in-0 has no offset to start from \(none is committed\).*'none'"):
        raise f.failure()


def test_a_source_of_the_topology_may_have_its_own_reset_policy() -> None:
    f = Fed(topology=passing(offset_reset="latest"), auto_offset_reset="none")
    put(f.world, 0, "a")
    f.start()
    f.commit()
    assert f.world.consumer.positions == {IN: 1}


def test_only_the_partitions_without_a_committed_offset_are_reset() -> None:
    f = Fed("left", "right", auto_offset_reset="latest")
    f.world.logs[LEFT].add(*"abc")
    f.world.logs[RIGHT].add(*"abcde")
    f.start(1)
    f.commit()
    assert f.world.consumer.positions == {LEFT: 1, RIGHT: 5}


def test_a_late_answer_about_other_partitions_does_not_start_a_task_that_waits() -> None:
    f = Fed("left", "right")
    f.world.requests.holds = True
    assert f.start(3) == []
    (question,) = f.world.requests.questions
    question.reply_to.try_put(Bounds(A, {LEFT: (7, 9)}))
    f.inputs.run_once()
    assert f.inputs.take_started() == []
    f.world.logs[LEFT].control(9)
    f.world.requests.answer()
    f.inputs.run_once()
    assert f.inputs.take_started() == [f.task]
    assert f.world.consumer.positions == {LEFT: 3, RIGHT: 0}


def test_bounds_that_cannot_be_learned_now_are_asked_for_again() -> None:
    f = Fed()
    f.world.requests.error = KafkaUnreachableError("no broker")
    assert f.start() == []
    f.world.requests.error = None
    f.world.clock.advance(SOONEST_MS)
    f.inputs.run_once()
    f.inputs.run_once()
    assert f.inputs.take_started() == [f.task]


def test_bounds_that_cannot_be_learned_within_task_timeout_fail_the_task() -> None:
    f = Fed(task_timeout_ms=1_000)
    f.world.requests.error = KafkaUnreachableError("no broker")
    f.start()
    f.inputs.run_once()
    f.world.clock.advance(1_001)
    f.inputs.run_once()
    assert f.inputs.take_failed() == []
    with pytest.raises(TimeoutExceededError, match=r"0_0.*task_timeout_ms: no broker"):
        raise f.failure()


def test_an_error_about_a_task_that_was_stopped_since_is_nobodys_business() -> None:
    f = Fed()
    f.world.requests.holds, f.world.requests.error = True, KafkaUnreachableError("no broker")
    f.start()
    f.inputs.stop(f.task)
    f.world.requests.answer()
    f.inputs.run_once()
    assert f.world.requests.questions == []


def test_a_stopped_task_is_fed_no_more_and_is_not_handed_out_as_started() -> None:
    f = Fed()
    f.inputs.start(f.task, {IN: OffsetAndMetadata(0)})
    f.inputs.stop(f.task)
    assert f.inputs.take_started() == []
    assert f.world.consumer.assigned == frozenset()


def test_fetched_records_and_ends_go_to_their_task() -> None:
    f = Fed()
    put(f.world, 0, "a", "b")
    f.start(0)
    assert f.inputs.fetch(0)
    assert f.task.input.waiting() == 2
    assert not f.inputs.fetch(70)
    assert f.world.consumer.waits == [0, 70]


@pytest.mark.parametrize(("policy", "position"), [("earliest", 3), ("latest", 6)])
def test_an_offset_that_retention_took_is_skipped_as_the_reset_policy_says(
    policy: str, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    f = losing(auto_offset_reset=policy)
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: position}
    assert f.task.input.position(IN) == position
    assert "LOST" in caplog.text
    f.inputs.fetch(0)
    assert f.task.input.waiting() == 6 - position


def test_the_reset_policy_none_fails_the_task_when_an_offset_is_lost() -> None:
    f = losing(auto_offset_reset="none")
    f.inputs.fetch(0)
    with pytest.raises(SourceTopicError, match=r"offset 1 is no longer in the log"):
        raise f.failure()


def test_an_offset_that_is_in_the_log_after_all_is_read_on_from_and_nothing_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    f = Fed(auto_offset_reset="latest")
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.world.consumer.next.append(Fetched(out_of_range=[IN]))
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: 1}
    assert "LOST" not in caplog.text


def test_a_lost_offset_of_a_task_that_was_stopped_meanwhile_changes_nothing() -> None:
    f = losing()
    f.world.requests.holds = True
    f.inputs.fetch(0)
    f.inputs.stop(f.task)
    f.world.requests.answer()
    f.inputs.run_once()
    assert f.world.consumer.assigned == frozenset()


def test_a_lost_offsets_bounds_are_asked_for_again_after_an_error() -> None:
    f = losing()
    f.world.requests.error = KafkaUnreachableError("no broker")
    f.inputs.fetch(0)
    f.inputs.run_once()
    f.world.requests.error = None
    f.world.clock.advance(SOONEST_MS)
    f.inputs.run_once()
    f.inputs.run_once()
    assert f.world.consumer.positions == {IN: 3}


def test_a_partition_that_one_broker_does_not_know_is_looked_for_again_after_a_pause() -> None:
    """A broker that has just started may not know a topic; whether it was deleted is the housekeeper's to say."""
    f = Fed()
    put(f.world, 0, "a", "b")
    f.start(0)
    f.inputs.fetch(0)
    f.world.consumer.next.append(Fetched(gone=[IN]))
    f.inputs.fetch(0)
    f.inputs.run_once()
    assert f.world.consumer.assigned == frozenset()
    assert [asked.topics for asked in f.world.requests.ids_asked] == [{"in"}]
    f.world.clock.advance(LATEST_MS)
    f.inputs.run_once()
    assert [asked.topics for asked in f.world.requests.ids_asked] == [{"in"}, {"in"}], "before it is read again"
    assert f.world.consumer.positions == {IN: 2}


def test_bounds_that_are_not_known_are_asked_for_after_pauses_that_get_longer() -> None:
    """All tasks of all instances ask: at once, and again at once, would be a storm on a cluster in trouble."""
    f = Fed()
    f.world.requests.error = KafkaUnreachableError("no broker")
    f.start()
    asked = f.world.requests.asked
    for _ in range(10_000):
        f.world.clock.advance(1)
        f.inputs.run_once()
    assert 5 <= f.world.requests.asked - asked <= 12


def test_a_wall_clock_that_is_put_back_keeps_no_task_from_what_its_other_inputs_have() -> None:
    f = Fed("left", "right", max_task_idle_ms=50)
    processing = InlineProcessing(f.world.context)
    f.start(0, 0)
    processing.add(f.task)
    f.inputs.fetch(0)
    f.world.clock.set_wall_ms(0)
    f.world.clock.advance(50)
    f.world.logs[LEFT].add("a")
    f.inputs.fetch(0)
    assert processing.run_once(f.world.clock.monotonic_ms())


def test_lags_count_what_is_not_processed_yet_buffered_records_included() -> None:
    f = Fed()
    put(f.world, 0, *"abcdef")
    f.start(1)
    f.inputs.fetch(0)
    assert f.inputs.lags() == {IN: 5}
    f.task.process(2, 0)
    assert f.inputs.lags() == {IN: 3}
