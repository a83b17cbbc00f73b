"""Tasks whose commits are made again alone, as one of them has outputs that Kafka doesn't take in time: no transaction
has outputs of a task without the task's offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError

from milestones.ended_tasks.commit_isolation import TURN_MS
from tests.milestones.fake_kafka import kafka_error
from tests.milestones.fakes import A, put
from tests.milestones.m5_committed_collector.collecting import MoodyLedger, RunningCollector

NOT_IN_TIME = kafka_error(KafkaError._TIMED_OUT, abort=True)


def with_outputs_of_another_task_first() -> RunningCollector:
    """0_0 and 0_1 are to be committed again, each alone. Outputs of 0_2 are in the transaction that is open; its commit
    waits for the new generation."""
    r = RunningCollector(commit_interval_ms=5_000)
    r.run(0, 1, 2)
    r.feed("a", steps=2)
    r.feed("b", partition=1, steps=2)
    r.world.producer.fail("send_offsets", NOT_IN_TIME)
    r.commits.pace.hasten()
    r.until(lambda: r.loop._ends.isolating, ms=0)
    r.world.member.gate = True
    put(r.world, 2, "c")
    r.until(lambda: r.world.producer.in_transaction, ms=1)
    assert r.loop._register.retained
    return r


def stop(r: RunningCollector) -> None:
    r.loop.shut_down(leave_group=True)


def one_of_them_isnt_suspected_any_more(r: RunningCollector) -> None:
    r.loop._ends.forget(A)
    r.world.member.gate = False
    r.until_committed(1, 1, 1)


@pytest.mark.parametrize("then", [stop, one_of_them_isnt_suspected_any_more])
def test_outputs_that_are_in_the_transaction_are_committed_with_their_offsets_first(
    then: Callable[[RunningCollector], None],
) -> None:
    r = with_outputs_of_another_task_first()
    then(r)
    made = [one for one in r.tries if one.offsets.keys() == {("in", 2)}]
    assert [len(one.to("out")) for one in made] == [1]
    assert sorted(r.sent()) == [("k", 1)] * 3


def test_a_refused_record_of_one_of_them_is_found_however_long_a_new_producer_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tells outputs apart; the turn of its task doesn't end meanwhile."""
    r = RunningCollector()
    r.run(0, 1, 2)
    new_producer = r.world.new_producer

    def later() -> MoodyLedger:
        producer = new_producer()
        producer.withheld, producer.answers_ms = {"init_transactions"}, r.world.clock.monotonic_ms() + 2 * TURN_MS
        return producer

    monkeypatch.setattr(r.world, "new_producer", later)
    r.world.moods.refused = {b"bad"}
    put(r.world, 0, "a", key="bad")
    put(r.world, 1, "b")
    r.world.producer.fail("send_offsets", NOT_IN_TIME)
    r.until(lambda: r.loop._ends.isolating)
    for number in range(100):
        put(r.world, 2, f"c{number}")
        r.step(10, ms=10)
    assert A in r.tasks.ended
    assert (r.offset(1), r.world.clients.renewed) == (1, 2)
