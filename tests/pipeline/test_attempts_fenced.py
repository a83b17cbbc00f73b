"""Attempts of Spark tasks, without Spark: who may commit, and who fences whom. On a real broker."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from milestones.common.kafka.failures import ErrorClass, classify
from milestones.common.kafka.membership import StaleGenerationError
from milestones.pipeline.hosting.hosted_task import HostedTask
from milestones.pipeline.hosting.ranges import RangeEnd, RangeOutcome
from tests.pipeline.attempts_bench import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    SLOW,
    Make,
    meanwhile,
)

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_under_a_generation_that_is_over_nothing_is_committed(bench: Make, guarantee: str) -> None:
    b = bench(guarantee)
    old = b.lent
    b.lent = b.next_generation()
    end = b.send(*"abc")
    stale = b.attempt(b.range(end, lent=old))
    assert (stale.end, b.committed()) == (RangeEnd.STALE, None)
    done = b.attempt(b.range(end))
    assert (done.end, b.committed()) == (RangeEnd.DONE, 3)
    if guarantee == EXACTLY_ONCE:
        assert b.counts() == [1, 2, 3]


def test_a_generation_that_ends_amid_a_range_takes_what_isnt_committed_yet(bench: Make) -> None:
    b = bench(**SLOW)
    end = b.send(*"abc")
    work = b.range(end)
    clients = b.clients(work)
    hosted = HostedTask(clients, work)
    clients.member.check = lambda: None  # type: ignore[method-assign]  # its commit comes before its next heartbeat
    b.lent = b.next_generation()
    with pytest.raises(KafkaException) as raised:
        hosted.run()
    clients.close()
    assert classify(raised.value) is ErrorClass.ABORTABLE
    assert b.committed() is None
    b.attempt(b.range(end))
    assert b.counts() == [1, 2, 3]


def test_a_run_has_a_static_id_that_no_thread_of_an_instance_has(bench: Make) -> None:
    b = bench(group_instance_id="one")
    assert {member.instance_id for member in b.members()} == {"one-spark"}
    assert b.attempt(b.range(b.send(*"abc"))).records == 3


def test_an_attempt_that_begins_under_a_generation_that_is_over_fences_nobody(bench: Make) -> None:
    b = bench()
    old, end = b.lent, b.send(*"abc")
    b.lent = b.next_generation()
    work = b.range(end)
    rightful = b.clients(work)
    assert b.attempt(b.range(end, lent=old)).end is RangeEnd.STALE
    assert HostedTask(rightful, work).run().records == 3
    rightful.close()
    assert b.counts() == [1, 2, 3]


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_restoration_ends_with_its_generation(bench: Make, guarantee: str, tmp_path: Path) -> None:
    b = bench(guarantee)
    b.attempt(b.range(b.send(*"abc")))
    b.config = b.config.replace(state_dir=str(tmp_path / "elsewhere"))
    work = b.range(b.send("d"))
    clients = b.clients(work)
    b.overtake()
    with pytest.raises(StaleGenerationError):
        HostedTask(clients, work).run()
    clients.close()
    assert (clients.restored.records, b.committed()) == (0, 3)


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_range_ends_with_its_generation_and_what_was_committed_stays(bench: Make, guarantee: str) -> None:
    b = bench(guarantee, **SLOW)
    b.attempt(b.range(b.send("a", "b")))
    work = b.range(b.send(*["x"] * 3_000))
    clients = b.clients(work)
    hosted = HostedTask(clients, work)
    meanwhile.append(b.overtake)
    with pytest.raises(StaleGenerationError):
        hosted.run()
    clients.close()
    assert (hosted.records < 3_000, b.committed()) == (True, 2)
    assert b.attempt(b.range(3_002)).records == 3_000


def test_a_producer_that_lost_a_connection_makes_no_further_transaction(bench: Make) -> None:
    b = bench(commit_interval_ms=1)
    end = b.send(*["x"] * 20_000)
    work = b.range(end)
    clients = b.clients(work)
    clients.producer._watch.lost = True
    done = HostedTask(clients, work).run()
    clients.close()
    assert (done.commits, done.records < end, b.committed()) == (1, True, done.records)
    assert done.schedule is not None
    assert b.attempt(b.range(end)).records == end - done.records
    assert b.counts() == list(range(1, end + 1))


def test_a_later_attempt_fences_an_earlier_one(bench: Make) -> None:
    b = bench()
    end = b.send(*"abc")
    slow = b.clients(b.range(end))
    quick = b.attempt(b.range(end), first=False)
    assert (quick.end, quick.records) == (RangeEnd.DONE, 3)
    with suppress(KafkaException):
        assert HostedTask(slow, b.range(end)).run().records == 0
    slow.close()
    assert b.counts() == [1, 2, 3]


def test_an_earlier_attempt_in_the_middle_of_its_work_is_fenced_too(bench: Make) -> None:
    b = bench(**SLOW)
    end = b.send(*"abc")
    slow = b.clients(b.range(end))
    task = HostedTask(slow, b.range(end))
    results: list[RangeOutcome] = []

    def meanwhile(*_: object) -> None:
        results.append(b.attempt(b.range(end), first=False))

    before_commit = slow.member.metadata
    slow.member.metadata = lambda: (meanwhile(), before_commit())[1]  # type: ignore[method-assign]
    with pytest.raises(KafkaException) as raised:
        task.run()
    slow.close()
    assert classify(raised.value) is ErrorClass.FATAL
    assert (results[0].end, results[0].records, b.counts()) == (RangeEnd.DONE, 3, [1, 2, 3])


def test_at_least_once_a_second_attempt_leaves_the_first_alone(bench: Make) -> None:
    b = bench(AT_LEAST_ONCE)
    late = b.attempt(b.range(b.send("a")), first=False)
    assert (late.end, b.committed()) == (RangeEnd.TOO_LATE, None)
