"""`kill -9` and SIGSTOP on Spark's processes, on a cluster of two executors: what was committed stays exact."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

import psutil
import pytest

from compat_tests.cases.closings import CONTINUE, Closings
from compat_tests.harness.world import World
from compat_tests.spark.processes import SOON_LOST, SPECULATION, TWO_HOSTS, SparkProcess, two_hosts
from compat_tests.spark.running import BATCH, END_S, MICRO_BATCH, amid, judge_all
from compat_tests.spark.shapes import shape_of
from milestones.testing import until

pytestmark = pytest.mark.last_stage

SHAPE = shape_of("count")
RECORDS = 120_000
START_S = 180.0
LOST = "Lost executor"
KILLS, PORTION = 20, 40_000
OFTEN_LOST = ("spark.task.maxFailures=30", "spark.deploy.maxExecutorRetries=-1")
"""Spark doesn't give a run up however many executors it loses."""


def begun(world: World, mode: str, *settings: str, **how: Any) -> SparkProcess:
    """A run that has committed some of the inputs, not all."""
    world.create(**dict.fromkeys(SHAPE.outputs, 2))
    world.input("in", 4).send(world.records(RECORDS, keys=500))
    run = SparkProcess(world, SHAPE.topology, mode, *settings, **how).start()
    amid(world, RECORDS, START_S)
    return run


def one_at_work(run: SparkProcess) -> tuple[psutil.Process, psutil.Process]:
    """An executor and its worker that computes."""
    found: list[tuple[psutil.Process, psutil.Process]] = []

    def some() -> bool:
        found.extend((one, worker) for one in run.executors() for worker in run.workers(one))
        return bool(found)

    until(some, "an executor works", START_S, run.must_live)
    return found[0]


@pytest.mark.timeout(900)
@pytest.mark.short_under("exactly_once_v2")
@pytest.mark.parametrize("mode", [BATCH, MICRO_BATCH])
def test_an_executor_is_killed(world: World, mode: str) -> None:
    run = begun(world, mode)
    executor, _ = one_at_work(run)
    executor.kill()
    world.work_done(timeout_s=END_S * 2)
    run.says(LOST, START_S)
    if mode == MICRO_BATCH:
        run.ask_to_stop()
    run.dies(0, timeout_s=END_S)
    judge_all(world, SHAPE, crashed=True)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", [BATCH, MICRO_BATCH])
def test_each_window_is_emitted_once_though_an_executor_is_killed(world: World, mode: str) -> None:
    closings = Closings(world, partitions=4)
    closings.send(RECORDS)
    run = SparkProcess(world, "windows", mode).start()
    amid(world, RECORDS, START_S)
    executor, _ = one_at_work(run)
    executor.kill()
    world.work_done(timeout_s=END_S * 2)
    run.says(LOST, START_S)
    if mode == MICRO_BATCH:
        run.ask_to_stop()
    run.dies(0, timeout_s=END_S)
    closings.emitted_once()
    judge_all(world, shape_of("windows"), crashed=True)


@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_each_window_is_emitted_once_over_twenty_kills_with_failing_records_in_the_batches(world: World) -> None:
    closings = Closings(world, partitions=4)
    run = SparkProcess(world, "windows", MICRO_BATCH, *OFTEN_LOST, **CONTINUE).start()
    for _ in range(KILLS):
        before = sum(world.committed().values())
        closings.send(PORTION, poison=True)
        amid(world, before + PORTION, START_S, before)
        executor, _ = one_at_work(run)
        executor.kill()
        psutil.wait_procs([executor], timeout=START_S)
    world.work_done(timeout_s=END_S * 2)
    run.ask_to_stop()
    run.dies(0, timeout_s=END_S)
    closings.emitted_once()
    judge_all(world, shape_of("windows"), crashed=True)


@pytest.mark.timeout(900)
@pytest.mark.short_under("exactly_once_v2")
def test_the_driver_is_killed_and_another_run_takes_over(world: World) -> None:
    run = begun(world, BATCH)
    run.executors()
    run.kill()
    run.start()
    run.dies(0, timeout_s=START_S + END_S)
    world.work_done()
    judge_all(world, SHAPE, crashed=True)


@pytest.mark.timeout(900)
@pytest.mark.short_under("exactly_once_v2")
def test_an_attempt_that_stood_still_does_no_harm_when_it_wakes_up_replaced(world: World) -> None:
    run = begun(world, BATCH, *SOON_LOST)
    executor, worker = one_at_work(run)
    for process in (worker, executor):
        process.send_signal(signal.SIGSTOP)
    run.says(LOST, START_S)
    worker.send_signal(signal.SIGCONT)
    world.work_done(timeout_s=END_S * 2)
    run.dies(0, timeout_s=END_S)
    judge_all(world, SHAPE, crashed=True, scratch=True)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_speculation_starts_a_second_attempt_beside_the_first(world: World) -> None:
    with two_hosts(world.directory) as master:
        run = begun(world, BATCH, *SPECULATION, *TWO_HOSTS, master=master)
        _, worker = one_at_work(run)
        worker.send_signal(signal.SIGSTOP)
        world.work_done(timeout_s=END_S * 2)
        with suppress(psutil.NoSuchProcess):  # Spark kills an attempt that is of no use any more
            worker.send_signal(signal.SIGCONT)
        run.dies(0, timeout_s=END_S)
        judge_all(world, SHAPE, crashed=True, scratch=True)
