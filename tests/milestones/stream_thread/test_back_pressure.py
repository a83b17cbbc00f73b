"""What Kafka doesn't take, or doesn't confirm, isn't added to; and the thread goes on answering its group."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from milestones.baseline.collection import ROOM_MS
from milestones.common.errors import SourceTopicError, TimeoutExceededError
from milestones.common.kafka.membership import Assigned, CommitRetriableError, JoinNeeded
from milestones.common.kafka.producer import OutputProducer
from milestones.common.records import TaskId
from tests.milestones.fakes import TIMED_OUT, Running, World, assignment, counting, passing, put
from tests.milestones.stepped_workers import ProcessingWorld, RunningProcessing

ALOS = {"processing_guarantee": "at_least_once", "commit_interval_ms": 100}
MANY = range(50)


def turn_ms(r: Running) -> int:
    """How long a turn takes, by the clock of the world."""
    began = r.world.clock.monotonic_ms()
    r.step()
    return r.world.clock.monotonic_ms() - began


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_without_room_in_the_client_a_turn_is_short_and_nothing_more_is_processed(guarantee: str) -> None:
    r = Running(World(passing(), {"processing_guarantee": guarantee, "commit_interval_ms": 10_000})).run(0, 1)
    r.world.producer.room = 0
    put(r.world, 0, "a")
    assert turn_ms(r) <= ROOM_MS
    put(r.world, 0, *"bcdef")
    put(r.world, 1, *"ghijk")
    assert [turn_ms(r) <= ROOM_MS for _ in range(5)] == [True] * 5
    assert r.loop._processing.processed == 1
    r.world.producer.room = None
    r.step(3)
    assert sorted(output.value or b"" for _, output in r.world.producer.sent) == [bytes([c]) for c in b"abcdefghijk"]


def test_a_thread_without_room_answers_its_group(caplog: pytest.LogCaptureFixture) -> None:
    r = Running(World(passing(), ALOS)).run(0)
    r.world.producer.room = 0
    r.feed("a")
    r.world.member.events.append(JoinNeeded("another member"))
    began, joins = r.world.clock.monotonic_ms(), len(r.world.member.joins)
    r.step()
    assert len(r.world.member.joins) == joins + 1
    assert r.world.clock.monotonic_ms() - began < 10_000
    r.assign(0)
    r.world.producer.room = None
    r.step(3, ms=2_000)
    assert [output.value for _, output in r.world.producer.sent] == [b"a"], "nothing is lost, nothing sent twice"
    assert r.world.member.commits[-1][next(iter(r.tasks.processing[TaskId(0, 0)].partitions))].offset == 1


def test_what_had_no_room_in_a_transaction_is_rolled_back_before_its_task_is_given_away() -> None:
    """Else the next commit would take a part of that task's outputs along, without its offsets."""
    r = Running(World(passing(), {"commit_interval_ms": 10_000})).run(0, 1)
    put(r.world, 0, "a", "b")
    r.world.producer.room = 1
    r.step()
    r.hear(JoinNeeded("another member"), steps=3)
    r.hear(Assigned(5, "member", assignment(r.world, 1)), steps=3)
    assert "abort" in r.world.producer.calls
    assert "commit" not in r.world.producer.calls


def test_what_waits_in_the_client_is_thrown_away_before_its_task_is_given_away() -> None:
    """Sent later, it would lie behind what the next owner has written, in its changelog too."""
    r = Running(World(passing(), {**ALOS, "commit_interval_ms": 10_000})).run(0, 1)
    put(r.world, 0, "a")
    put(r.world, 1, "b")
    r.step(2)
    queueing = r.world.producer
    queueing.fail("flush", *[TIMED_OUT] * 1_000)
    r.rebalance(1)
    assert queueing.closed
    r.step(3)
    assert [output.value for _, output in r.world.producer.sent] == [b"b"], "the task that stays has it made again"


def test_what_kafka_has_taken_of_a_task_that_is_given_away_rolls_no_other_task_back() -> None:
    r = Running(World(passing(), {**ALOS, "commit_interval_ms": 10_000})).run(0, 1)
    put(r.world, 0, "a")
    put(r.world, 1, "b")
    r.step(2)
    r.world.member.commit_errors.extend([CommitRetriableError("not yet")] * 2)
    r.rebalance(1)
    assert not r.world.producer.closed
    assert r.tasks.roll_backs.count == 0


@pytest.mark.parametrize("topology", [passing, counting])
def test_without_any_room_for_task_timeout_the_thread_ends_and_names_what_has_no_leader(topology: Any) -> None:
    r = Running(World(topology(), {**ALOS, "task_timeout_ms": 1_000})).run(0)
    r.world.producer.room = 0
    put(r.world, 0, "a")
    with pytest.raises(TimeoutExceededError, match=r"task_timeout_ms \(1000\): without a leader: .*out"):
        r.step(100)
    assert r.world.clock.monotonic_ms() < 3_000


def test_without_room_for_a_topic_that_is_missing_the_thread_ends_with_the_exit_code_of_a_missing_topic() -> None:
    r = Running(World(passing(), {**ALOS, "task_timeout_ms": 1_000})).run(0)
    r.world.producer.room, r.world.producer.missing_topics = 0, ("out",)
    put(r.world, 0, "a")
    with pytest.raises(SourceTopicError, match="no output could be sent") as ended:
        r.step(100)
    assert ended.value.exit_code == 2


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_thread_without_room_that_is_to_stop_does_so_in_the_time_it_is_given(guarantee: str) -> None:
    r = Running(World(passing(), {"processing_guarantee": guarantee})).run(0)
    r.world.producer.room = 0
    r.feed("a")
    r.world.context.retry_policy.hurry(10_000)
    began = r.world.clock.monotonic_ms()
    r.loop.shut_down(leave_group=True)
    assert r.world.clock.monotonic_ms() - began <= 11_000
    assert r.world.state.held == set()


def test_a_last_commit_that_fails_for_a_moment_is_made_again() -> None:
    r = Running(World(passing(), {**ALOS, "commit_interval_ms": 60_000})).run(0)
    r.feed("a", steps=2)
    r.world.member.commit_errors.extend([CommitRetriableError("not yet")] * 3)
    r.loop.shut_down(leave_group=True)
    assert [next(iter(commit.values())).offset for commit in r.world.member.commits] == [1]
    assert r.world.member.closed is True


LIMIT = 20_000


def uncommitted(r: Running) -> int:
    return sum(task.uncommitted_bytes() for task in r.tasks.processing.values())


@pytest.mark.parametrize(
    "running", [lambda settings: Running(World(counting(), settings)),
                lambda settings: RunningProcessing(ProcessingWorld(**settings))], ids=["inline", "threads"]
)  # fmt: skip
def test_while_commits_fail_uncommitted_state_stays_at_its_bound(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    r = running({**ALOS, "statestore_uncommitted_max_bytes": LIMIT, "num_stream_threads": 1}).run(*MANY)
    tries: list[int] = []

    def refuse(*_: Any) -> None:
        tries.append(r.world.clock.monotonic_ms())
        raise CommitRetriableError("the coordinator is away")

    commit, r.world.member.commit_offsets = r.world.member.commit_offsets, refuse
    most = 0
    with caplog.at_level(logging.WARNING):
        for number in range(600):
            for partition in MANY:
                put(r.world, partition, "v", key=f"key-{number}")
            r.step(ms=50)
            most = max(most, uncommitted(r))
    assert LIMIT <= most < 2 * LIMIT
    assert len(tries) < 30, "a pause that grows"
    assert sum("commit will be repeated" in line.message for line in caplog.records) <= 4
    r.world.member.commit_offsets = commit
    r.step(400, ms=50)
    assert uncommitted(r) == 0
    assert {at.offset for at in r.world.member.committed.values()} == {600}


def test_a_producer_lets_go_of_tasks_that_have_left() -> None:
    p = OutputProducer({"bootstrap.servers": "127.0.0.1:1"})
    for partition in range(100):
        p.send(TaskId(0, partition), [])
    p._reports.update({(TaskId(0, n), False): p._reports_of(TaskId(0, n), False) for n in range(100)})
    p.forget_all_but({TaskId(0, 7)})
    assert p._reports.keys() == {(TaskId(0, 7), False)}
    p.close()
