"""Two instances share 64 tasks of three stores; one is stopped, and one of the stores that the other has to open then
takes 12 s, three times `max_poll_interval_ms`. With `--calls` a call of user code takes as long after that, on the only
thread that calls it.

| figure | what |
|---|---|
| before | the longest time between two outputs of a partition, in the seconds before |
| pause | the same from the stop on, of a partition whose task stayed where it was |
| late | how long an input of these partitions waited for its output at most, from the stop on |
| fed | how long the feeder's own records waited for the broker at most: what the machine itself adds |
| moved | the longest pause of a partition whose task moved, but for the slow one's |
| slow | the pause of the slow task's partition |
| looks start | the longest time between two looks of a loop at its group, outside Kafka's calls, until the stop |
| looks, looks calls | the same from the stop on, of the instance that stays, and during the call |
| tasks, commit | the longest part of a turn that moved tasks on, or committed, from the stop on |

*Guarantees*: a run counts only when the slow store was opened slowly, no input lacks its output and, under exactly
once, none has two. Times of records are the broker's (`LogAppendTime`), whether or not they are committed.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Message, Producer
from rich.table import Table

from benchmarks.cluster import CALL_S, Cluster
from benchmarks.errors import BenchmarkError
from benchmarks.fed import STAMPED
from benchmarks.job import EXACTLY_ONCE
from benchmarks.looks import SAID_LATE_S, longest_look
from benchmarks.moves.group import Group
from benchmarks.moves.timeline import assignments, longest_gap, owners, worst
from benchmarks.moves.traffic import thread
from benchmarks.opening import CALLED, CALLS, OPEN, PARTITIONS, SLOW_S
from benchmarks.report import columns
from milestones.common.kafka.producer_log import UNWATCHED

TIMEOUT_S = 300.0
BEFORE_S, LOOK_BACK_S, AFTER_S = 10.0, 5.0, 3.0
COMMIT_INTERVAL_MS = 100
MAX_POLL_INTERVAL_MS = int(SLOW_S * 1000 / 3)
NAMES = STAYS, STOPS = ("one", "two")
APP = "benchmarks.opening.app"
KEYS = 10
"""Of each partition."""
TOOK = re.compile(r"^(\d+\.\d+) .*: (\w+) took (\d+\.\d+) s$", re.MULTILINE)
LOST = "membership lost"
EVERYTHING = "read_uncommitted"
HEADINGS = (
    "stage", "guarantee", "before", "pause", "late", "fed", "moved", "slow", "looks start", "looks", "looks calls",
    "tasks", "commit", "given", "lost", "twice", "load",
)  # fmt: skip


@dataclass(frozen=True)
class Opened:
    """What a run has shown. Times in s. `generations`: that the instance which stays was given from the stop on;
    `lost`: memberships; `doubled`: outputs beyond one of an input; `load`: the machine's, of a minute."""

    stage: str
    guarantee: str
    before: float
    pause: float
    late: float
    fed: float
    moved: float
    slow: float
    looks_start: float
    looks: float
    looks_calls: float
    tasks: float
    commit: float
    generations: int
    lost: int
    doubled: int
    records: int
    load: float


class PacedFeed:
    """For one use: `rate` records a second for each partition, one after the other. `given`: when each was given to
    the client, s since the epoch. Their values are their numbers, and a number says the partition (`task_of`)."""

    def __init__(self, servers: str, topic: str, rate: float) -> None:
        self._topic, self._every_s = topic, 1 / rate / PARTITIONS
        self._producer = Producer({"bootstrap.servers": servers, **UNWATCHED, "linger.ms": 0})
        self.given: list[float] = []

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.given)

    def __call__(self, stop: threading.Event) -> None:
        begun = time.monotonic()
        while not stop.wait(max(0.0, begun + self.records * self._every_s - time.monotonic())):
            task, key = task_of(self.records), self.records // PARTITIONS % KEYS
            self._producer.produce(self._topic, b"%d" % self.records, b"%d-%d" % (task, key), task)
            self._producer.poll(0)
            self.given.append(time.time())
        left = self._producer.flush(CALL_S)
        self._producer.close()
        if left:
            raise BenchmarkError(f"Kafka hasn't taken {left} records of the input")


class Opening:
    """Runs with so many records a second in each partition. `calls`: a call is slow, too."""

    def __init__(self, cluster: Cluster, directory: Path, rate: float, *, calls: bool = False) -> None:
        self._cluster, self._directory, self._rate, self._calls = cluster, directory, rate, calls
        self._runs = 0

    def measure(self, stage: str, guarantee: str) -> Opened:
        """One run, with everything fresh. `BenchmarkError` when it doesn't count."""
        self._runs += 1
        app = f"opening-{self._runs}-{stage}-{guarantee.replace('_', '-')}"
        directory = self._directory / app
        directory.mkdir(parents=True)
        source, output, slow = f"{app}-input", f"{app}-output", directory / "slow"
        for topic in (source, output):
            self._cluster.create(topic, PARTITIONS, STAMPED)
        servers = self._cluster.bootstrap_servers
        settings = {
            "application_id": app, "bootstrap_servers": servers, "milestones": stage, "num_stream_threads": 1,
            "processing_guarantee": guarantee, "commit_interval_ms": COMMIT_INTERVAL_MS,
            "max_poll_interval_ms": MAX_POLL_INTERVAL_MS,
        }  # fmt: skip
        fed = PacedFeed(servers, source, self._rate)
        with (
            Group(directory, settings, source, output, str(slow), app=APP, tasks=PARTITIONS) as group,
            self._cluster.committed(app, source) as committed,
        ):
            group.start(*NAMES)
            group.settle(TIMEOUT_S)
            with thread(fed, "feeder"):
                # The first transaction of 128 partitions takes long.
                group.wait(lambda: committed() > fed.records - self._rate * PARTITIONS, "in step", TIMEOUT_S)
                time.sleep(BEFORE_S)
                had, start = owners(group.given()), time.time()
                first = min(task for task, name in had.items() if name == STOPS)
                slow.write_text(f"0_{first}")
                group.stop(STOPS)
                group.wait(lambda: OPEN in group.log(STAYS), "the slow store is open", TIMEOUT_S)
                group.settle(TIMEOUT_S)
                time.sleep(AFTER_S)
                end, load = time.time(), os.getloadavg()[0]
                if self._calls:
                    slow.write_text(CALLS)
                    group.wait(lambda: CALLED in group.log(STAYS), "the call is over", TIMEOUT_S)
                called = time.time()
            group.wait(lambda: committed() >= fed.records, "all inputs are committed", TIMEOUT_S)
            group.stop(STAYS)
        told = group.log(STAYS)
        span = Span(start, end, frozenset(task for task, name in had.items() if name == STAYS), first)
        inputs, outputs = (list(map(of, self._cluster.read(topic, EVERYTHING))) for topic in (source, output))
        values = Counter(of(message).number for message in self._cluster.read(output))
        return Opened(
            stage,
            guarantee,
            **figures(fed.given, dict(inputs), outputs, span),
            looks_start=longest_look(told, 0.0, start),
            looks=longest_look(told, start, end),
            looks_calls=longest_look(told, end, called + SAID_LATE_S),
            **{what: longest(what, told, start, end) for what in ("tasks", "commit")},
            generations=sum(one.at >= start for one in assignments(told)),
            lost=told.count(LOST),
            doubled=doubled(values, fed.records, guarantee),
            records=fed.records,
            load=load,
        )


def task_of(number: int) -> int:
    """The partition of an input, which is that of its output, and of its task."""
    return number % PARTITIONS


class Appended(NamedTuple):
    """A record in Kafka: its number, and when the broker had it (s since the epoch)."""

    number: int
    at: float


def of(message: Message) -> Appended:
    return Appended(int(message.value() or b"-1"), message.timestamp()[1] / 1000)


@dataclass(frozen=True)
class Span:
    """What is looked at: from the stop to the end, s since the epoch; the tasks that stayed; the slow one."""

    start: float
    end: float
    stayed: frozenset[int]
    slow: int


def figures(
    given: Sequence[float], inputs: Mapping[int, float], outputs: Sequence[Appended], span: Span
) -> dict[str, float]:
    """The times of a run. By number of an input: when it was `given` to the client, and when it was appended."""
    times: dict[int, list[float]] = {task: [] for task in range(PARTITIONS)}
    late = [0.0]
    for number, at in sorted(outputs, key=lambda one: one.at):
        times[task_of(number)].append(at)
        if span.start <= at <= span.end and task_of(number) in span.stayed:
            late.append(at - inputs[number])

    def pause(tasks: Iterable[int], start: float, end: float) -> float:
        return worst(longest_gap(times[task], start, end) for task in tasks)

    return {
        "before": pause(times, span.start - LOOK_BACK_S, span.start),
        "pause": pause(span.stayed, span.start, span.end),
        "late": max(late),
        "fed": worst(inputs[number] - at for number, at in enumerate(given) if span.start <= at <= span.end),
        "moved": pause(times.keys() - span.stayed - {span.slow}, span.start, span.end),
        "slow": pause([span.slow], span.start, span.end),
    }


def longest(what: str, told: str, start: float, end: float) -> float:
    """Of what the log says took long; 0 when nothing did."""
    return worst(float(took) for at, one, took in TOOK.findall(told) if one == what and start <= float(at) <= end)


def doubled(values: Mapping[int, int], records: int, guarantee: str) -> int:
    """How many outputs there are beyond one of each input. `BenchmarkError` when the outputs are wrong."""
    if missing := records - len(values.keys() & set(range(records))):
        raise BenchmarkError(f"{missing} of {records} inputs have no output")
    more = sum(values.values()) - records
    if more and guarantee == EXACTLY_ONCE:
        raise BenchmarkError(f"{more} outputs are there twice, under {guarantee}")
    return more


def table(title: str, found: Iterable[Opened]) -> Table:
    """A row per run."""
    shown = columns(title, *HEADINGS)
    for one in found:
        times = (one.before, one.pause, one.late, one.fed, one.moved, one.slow)
        turns = (one.looks_start, one.looks, one.looks_calls, one.tasks, one.commit)
        counts = (one.generations, one.lost, one.doubled)
        shown.add_row(
            one.stage, one.guarantee, *(f"{s:.2f}" for s in (*times, *turns)), *map(str, counts), f"{one.load:.0f}"
        )  # fmt: skip
    return shown
