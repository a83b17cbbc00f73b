"""Processing while its thread makes the turns of the stream thread's loop."""

from __future__ import annotations

from tests.milestones.fakes import put
from tests.milestones.m2_processing_threads.test_processing import running
from tests.milestones.stepped_workers import RunningProcessing


def lent(r: RunningProcessing, steps: int = 100) -> list[int]:
    """Have the processing thread make the turns: for how long each fetch could wait, ms."""
    worker, consumer = r.world.workers.all[0], r.world.consumer
    r.loop._processing._lending._loop = r.loop
    for _ in range(20):
        worker.step()
    consumer.waits.clear()
    for _ in range(steps):
        worker.step()
    assert r.loop._processing._lending.lent
    return list(consumer.waits)


def test_a_lent_loop_rests_while_enough_input_waits_for_a_task_in_quarantine() -> None:
    r = running(0)
    r.world.user_code.refused = {"a"}
    put(r.world, 0, "a", *map(str, range(3_500)))
    r.step(20)
    naps: list[int] = []
    r.loop._processing._scheduler._wait = lambda _, ms: naps.append(ms)
    lent(r)
    assert naps, "it spins"
    assert max(naps) <= 100


def test_a_lent_loop_that_waits_for_input_is_back_for_what_is_due_by_the_clock() -> None:
    r = running(0, poll_ms=1_000, commit_interval_ms=5_000)
    r.world.user_code.refused = {"a"}
    put(r.world, 0, "a", "b")
    waits = lent(r)
    assert waits
    assert max(waits) <= 100, "the first try is again after 100 ms"


def test_a_turn_waits_for_kafka_unless_its_thread_has_records_to_process_meanwhile() -> None:
    r = running(0)
    processing = r.loop._processing
    put(r.world, 0, "a")
    r.world.workers.stuck = True
    r.step(2)
    assert processing.may_wait_for_kafka(), "another thread has them"
    processing._lending._turning = True
    assert not processing.may_wait_for_kafka()
    r.world.workers.stuck = False
    r.world.workers.step()
    assert processing.may_wait_for_kafka(), "none are left"
    processing._lending._turning = False
