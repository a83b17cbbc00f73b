"""Joins of streams that have many records of one key and one time: cut into micro-batches anywhere, made again after a
failure, on an executor that has no state or an old one, handed over to a live instance and back, they write what one
process writes. On a real broker; a batch is an attempt without Spark, as a task makes it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.harness.feed import Sent
from milestones import JoinWindows, KStream, Streams, StreamsBuilder, StreamsConfig, serdes
from milestones.common.clock import SystemClock
from milestones.common.records import TopicPartition
from milestones.pipeline.driving.driver_membership import DriverMembership
from milestones.pipeline.hosting import hosted_task
from milestones.pipeline.hosting.ranges import RangeEnd
from milestones.testing import KafkaProbe, TopologyTestDriver, until
from tests.pipeline.attempts_bench import AT_LEAST_ONCE, EXACTLY_ONCE, Bench, Make, committed_of
from tests.topics import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

INPUTS = 2
"""More of them were tried by hand."""
TEXT = serdes.STRING
TIMEOUT_S, SPARK_S = 60, 120
Written = tuple[bytes | None, bytes | None, int]

@dataclass(frozen=True)
class Failures:
    """What fails once, by a file in a folder, so that each process sees it: the processing of the value that a file is
    named after. `exits`: it ends the process."""

    folder: Path
    exits: bool = False

    def plan(self, sent: Sent) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / (sent.value or b"").decode()).touch()

    def __call__(self, value: str) -> str:
        planned = self.folder / value
        if planned.exists():
            planned.unlink()
            if self.exits:
                os._exit(9)
            raise ValueError(f"{value} fails once")
        return value


def joins(failures: Callable[[str], str], app: str) -> StreamsBuilder:
    """Joins of each kind of records whose values begin with l and r, and of the first ones with themselves."""
    builder = StreamsBuilder()
    both = builder.stream(f"{app}-in", key=TEXT, value=TEXT).map_values(failures)
    left, right = (both.filter(lambda _, value, side=side: value.startswith(side)) for side in "lr")
    stores: dict[str, Any] = {"key": TEXT, "value": TEXT, "other_value": TEXT}

    def out(name: str, results: KStream[Any, Any]) -> None:
        results.map_values(f"{name} {{}}".format).to(f"{app}-out", key=TEXT, value=TEXT)

    def pair(one: str | None, other: str | None) -> str:
        return f"{one}+{other}"

    out("inner", left.join(right, pair, within=JoinWindows(2, grace=8), store="inner", **stores))
    out("left", left.left_join(right, pair, within=JoinWindows(0, grace=3), store="left", **stores))
    out("outer", left.outer_join(right, pair, within=JoinWindows(1, grace=6), store="outer", **stores))
    out("self", left.join(left, pair, within=JoinWindows(1, grace=4), store="self", **stores))
    return builder


def twins(rng: random.Random, count: int = 40) -> list[Sent]:
    """Records of two keys and a few times, some late, of yesterday."""
    now, made = int(time.time() * 1_000) - 86_400_000, []
    for number in range(count):
        now += rng.choice([0, 0, 0, 0, 1, 2, 7])
        at = now - rng.choice([0, 0, 0, 0, 1, 3, 9])
        made.append(Sent(rng.choice([b"a", b"a", b"b"]), f"{rng.choice('lr')}{number}".encode(), at))
    return made


def expected(records: Sequence[Sent]) -> list[Written]:
    """What one process writes of these."""
    with TopologyTestDriver(joins(str, "app")) as driver:
        for sent in records:
            driver.pipe("app-in", sent.key, sent.value, sent.timestamp)
        return [(one.key, one.value, one.timestamp) for one in driver.produced()["app-out"]]


def cut(rng: random.Random, records: Sequence[Sent], cuts: int = 6) -> list[Sequence[Sent]]:
    at = sorted({0, len(records), *rng.sample(range(1, len(records)), cuts)})
    return [records[first:last] for first, last in pairwise(at)]


class Executors:
    """An application's micro-batches, each on one of three executors."""

    def __init__(self, bench: Make, folder: Path, rng: random.Random, guarantee: str, **settings: Any) -> None:
        self._folder, self._rng, self._failures = folder, rng, Failures(folder / "failures")
        self.b: Bench = bench(guarantee, program=partial(joins, self._failures), **settings)

    def feed(self, records: Sequence[Sent]) -> int:
        for sent in records:
            self.b.probe.write(self.b.input.topic, sent.value, key=sent.key, timestamp=sent.timestamp)
        return self.b.probe.ends([self.b.input])[self.b.input]

    def batch(self, records: Sequence[Sent], *, fails: bool = False) -> None:
        """`fails`: an attempt before fails at one of the records, on some executor."""
        b, end = self.b, self.feed(records)
        if fails:
            self._failures.plan(self._rng.choice(records))
            self._place()
            assert b.attempt(b.range(end)).end is RangeEnd.FAILED
        self._place()
        done = b.attempt(b.range(end))
        assert (done.end, b.committed()) == (RangeEnd.DONE, end), done

    def _place(self) -> None:
        self.b.config = self.b.config.replace(state_dir=str(self._folder / f"executor-{self._rng.randrange(3)}"))

    def live(self, records: Sequence[Sent], stage: str) -> None:
        """A live instance takes over, and gives the application back."""
        b, end = self.b, self.feed(records)
        b.membership.close(leave=True)
        streams = Streams(b.topology, b.config.replace(milestones=stage, state_dir=str(self._folder / named("live"))))
        streams.start()
        try:
            until(lambda: b.committed() == end, "the live instance has committed all", TIMEOUT_S)
        finally:
            assert streams.close(TIMEOUT_S)
        b.membership = DriverMembership(b.config, b.application, b.id, 1, SystemClock())
        b.membership.start()
        b.lent = b.next_generation()

    def written(self) -> list[Written]:
        return [(one.key, one.value, one.timestamp) for one in self.b.probe.read(self.b.output, stable=True)]


def small_commits(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have a batch make several commits; settings for that."""
    monkeypatch.setattr(hosted_task, "TURN", 2)
    monkeypatch.setattr(hosted_task, "SLICE_MS", 0)
    return {"commit_interval_ms": 1}


def check_batches(bench: Make, folder: Path, seed: int, guarantee: str, **settings: Any) -> None:
    rng = random.Random(seed)
    records = twins(rng)
    executors = Executors(bench, folder, rng, guarantee, **settings)
    for batch in cut(rng, records):
        executors.batch(batch, fails=guarantee == EXACTLY_ONCE and rng.random() < 0.5)
    assert executors.written() == expected(records)


@pytest.mark.parametrize("seed", range(INPUTS))
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_batches_of_any_size_on_any_executor_write_what_one_process_writes(
    bench: Make, tmp_path: Path, seed: int, guarantee: str
) -> None:
    """Exactly once, attempts at some of them fail before."""
    check_batches(bench, tmp_path, seed, guarantee)


@pytest.mark.parametrize("seed", range(INPUTS))
def test_so_do_batches_of_several_commits_that_fail_between_two_of_them(
    bench: Make, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_batches(bench, tmp_path, seed, EXACTLY_ONCE, **small_commits(monkeypatch))


@pytest.mark.parametrize("seed", range(INPUTS))
def test_at_least_once_an_attempt_that_fails_costs_no_result(
    bench: Make, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    records = twins(rng)
    executors = Executors(bench, tmp_path, rng, AT_LEAST_ONCE, **small_commits(monkeypatch))
    for batch in cut(rng, records):
        executors.batch(batch, fails=rng.random() < 0.5)
    assert not Counter(expected(records)) - Counter(executors.written())


@pytest.mark.parametrize("stage", ["baseline", "m6"])
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_numbers_go_on_from_batches_to_a_live_instance_and_back(
    bench: Make, tmp_path: Path, stage: str, guarantee: str
) -> None:
    rng = random.Random(stage)
    records = twins(rng)
    executors = Executors(bench, tmp_path, rng, guarantee)
    for number, batch in enumerate(cut(rng, records, 4)):
        if number % 2:
            executors.live(batch, stage)
        else:
            executors.batch(batch)
    assert executors.written() == expected(records)


class OnSpark:
    """An application that runs on Spark and live in turns. `at`: its input."""

    def __init__(self, kafka: str, folder: Path, spark: SparkSession) -> None:
        self.id, self.kafka, self.spark, self.folder = named("twins"), kafka, spark, folder
        self.probe, self.at = KafkaProbe(kafka), TopicPartition(f"{self.id}-in", 0)
        self.failures = Failures(folder / "failures", exits=True)
        self.topology = joins(self.failures, self.id).build()
        self.probe.create({self.at.topic: 1, f"{self.id}-out": 1})

    def config(self, **settings: Any) -> StreamsConfig:
        """State is in a place of its own each time."""
        return StreamsConfig(
            application_id=self.id, bootstrap_servers=self.kafka, processing_guarantee=EXACTLY_ONCE,
            commit_interval_ms=100, state_dir=str(self.folder / named("state")), **settings,
        )  # fmt: skip

    def take(self, batches: Sequence[Sequence[Sent]], ended: Callable[[], bool] = lambda: False) -> None:
        """One after the other is committed. `ended`: raises what it has ended with."""
        for batch in batches:
            for sent in batch:
                self.probe.write(self.at.topic, sent.value, key=sent.key, timestamp=sent.timestamp)
            end = self.probe.ends([self.at])[self.at]
            self._await_committed(end, ended)

    def _await_committed(self, end: int, ended: Callable[[], bool]) -> None:
        until(lambda: ended() or committed_of(self.kafka, self.id, self.at) == end, "all is committed", SPARK_S)

    def on_spark(self, batches: Sequence[Sequence[Sent]]) -> None:
        from milestones.pipeline import run_on_spark

        with run_on_spark(
            self.topology, self.spark, mode="micro_batch", interval_ms=100, config=self.config()
        ) as run:
            self.take(batches, lambda: run.wait(0))
            assert run.stop(SPARK_S)

    def live(self, batches: Sequence[Sequence[Sent]], stage: str) -> None:
        streams = Streams(self.topology, self.config(milestones=stage))
        streams.start()
        try:
            self.take(batches)
        finally:
            assert streams.close(TIMEOUT_S)

    def written(self) -> list[Written]:
        return [(one.key, one.value, one.timestamp) for one in self.probe.read(f"{self.id}-out", stable=True)]


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(1))
def test_a_run_on_spark_whose_process_dies_a_live_instance_and_another_run_write_it_too(
    kafka: str, tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    rng, app = random.Random(seed), OnSpark(kafka, tmp_path, spark)
    records = twins(rng, 60)
    first, live, last = (cut(rng, some, 3) for some in (records[:25], records[25:35], records[35:]))
    app.failures.plan(rng.choice(first[1]))
    app.on_spark(first)
    app.live(live, "m6")
    app.on_spark(last)
    assert not [*app.failures.folder.iterdir()], "a process has died"
    assert app.written() == expected(records)
