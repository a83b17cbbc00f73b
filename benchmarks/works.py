"""The works that contenders do in turn, each with the options of its command.

*Guarantees*: `contenders` has each once, with each number of threads and tasks that is asked for.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import rich_click as click

from benchmarks import options
from benchmarks.blocking.work import Blocking
from benchmarks.commits.work import Commits
from benchmarks.contenders import (
    Contender,
    ours,
    peers,
    with_instances,
    with_late_answers,
    with_tasks,
    with_threads,
    with_workers,
)
from benchmarks.count.work import Count
from benchmarks.footprint.work import Footprint
from benchmarks.idle.work import Idle
from benchmarks.job import AT_LEAST_ONCE, COMMIT_INTERVAL_MS, EXACTLY_ONCE
from benchmarks.latency.work import Latency
from benchmarks.options import Option, together
from benchmarks.report import YARDSTICK
from benchmarks.restore.work import Restore
from benchmarks.restore.written import restored
from benchmarks.rows import Work
from benchmarks.skew.work import Skew
from benchmarks.stores.work import Stores
from benchmarks.tasks.work import Tasks
from milestones.flags import stage_names

ALL_STAGES = ",".join(stage_names())
BASELINE, M3, M5 = "milestones baseline", "milestones m3", "milestones m5"


SHARED = "m3,m4"
"""Where one instance's threads share its clients, beside where each has its own."""


@dataclass(frozen=True)
class Measured:
    """A work that contenders do in turn. `peers`: those that take part unless something else is said; `proxied`: the
    work looks at connections to the broker."""

    work: Callable[..., Work]
    name: str
    options: Option
    peers: str = "loop"
    stages: str = ALL_STAGES
    yardstick: str = YARDSTICK
    proxied: bool = False
    commit_interval_ms: str = COMMIT_INTERVAL_MS


data_options = together(
    options.records(500_000), options.keys, options.commit(int(COMMIT_INTERVAL_MS)), options.seed, options.guarantee
)
_commits = together(
    options.late("0,300,3000"),
    options.records(4_000_000),
    click.option("--keys", default=10_000, show_default=True, type=click.IntRange(1, 1_000_000)),
    click.option("--partitions", default=4, show_default=True, type=click.IntRange(1, 100)),
    options.commit(100),
    options.seconds(20),
    options.warm(10),
    options.threads("1"),
)
_blocking = together(
    click.option("--records", default=2_000, show_default=True, type=click.IntRange(min=100)),
    click.option("--threads", default=8, show_default=True, type=click.IntRange(min=1),
                 help="Processing threads, where a stage has them."),
    click.option("--work", default="call", show_default=True, type=click.Choice(["call", "native", "python"]),
                 help="What takes 10 ms: waiting for an answer, work in C, work in Python."),
)  # fmt: skip
_written = together(
    click.option("--written-by", default="", callback=options.words, metavar="STAGES",
                 help="Instead, with commas: the logs that these stages write for --records updates."),
    click.option("--keys", default=1_000, show_default=True, type=click.IntRange(1, 1_000_000),
                 help="That are updated, with --written-by."),
    options.commit(int(COMMIT_INTERVAL_MS)),
)  # fmt: skip
_idle = together(
    click.option("--tasks", default=512, show_default=True, type=click.IntRange(2, 4_000)), options.seconds(20)
)
_latency = together(
    options.rate(5_000, 100_000, "Records a second."),
    options.seconds(30),
    options.warm(20),
    options.threads("1"),
)
_skew = together(
    options.records(1_000_000),
    options.rate(100, 10_000, "Records a second in each of the other partitions."),
    options.threads("1"),
)
_footprint = together(
    options.threads("1,4,16"),
    click.option("--tasks", default=32, show_default=True, type=click.IntRange(1, 1_000)),
    options.records(100_000),
    options.seconds(5),
)

_tasks = together(options.tasks("4,64,512"), options.threads("1"), options.records(200_000), options.seconds(20))

_stores = together(
    options.tasks("64"),
    click.option("--stores", default=3, show_default=True, type=click.IntRange(1, 100), help="Of each task."),
    options.threads("4"),
    options.records(300_000),
    options.seed,
    options.guarantee_by(AT_LEAST_ONCE),
)

_several = together(options.threads("1"), options.instances("1"), options.workers("1"))

_COMMON = (options.seed, options.guarantee)
WORKS = (
    Measured(Count, Count.name, together(_several, data_options)),
    Measured(
        Commits, Commits.name, together(_commits, options.seed, options.guarantee_by(EXACTLY_ONCE)), "kafka-streams",
        "m3,m4,m5,m6", proxied=True,
    ),
    Measured(restored, Restore.name, together(options.records(500_000), _written, *_COMMON)),
    Measured(Blocking, Blocking.name, together(_blocking, *_COMMON), peers="", yardstick=BASELINE),
    Measured(Idle, Idle.name, together(_idle, *_COMMON), peers="", yardstick=BASELINE),
    Measured(
        Latency, Latency.name, together(_latency, *_COMMON), "kafka-streams", SHARED, M3, commit_interval_ms="100"
    ),
    Measured(Skew, Skew.name, together(_skew, *_COMMON), "kafka-streams", SHARED, M3, commit_interval_ms="100"),
    Measured(
        Footprint, Footprint.name, together(_footprint, *_COMMON), "kafka-streams", SHARED, M3, proxied=True
    ),
    Measured(
        Tasks, Tasks.name,
        together(_tasks, *_COMMON), "", SHARED, M3,
    ),
    Measured(Stores, Stores.name, _stores, "kafka-streams", "m5,m6", M5),
)  # fmt: skip


def contenders(
    work: str,
    stage_names: Sequence[str],
    peer_names: Sequence[str],
    thread_counts: Sequence[int] = (1,),
    instance_counts: Sequence[int] = (1,),
    worker_counts: Sequence[int] = (1,),
    task_counts: Sequence[int] | None = None,
    late_ms: Sequence[int] | None = None,
) -> list[Contender]:
    """Peers first; each with this number of threads, instances, workers and tasks, and with answers this late."""
    found = with_threads([*peers(peer_names, work), *(ours(stage, work) for stage in stage_names)], thread_counts)
    found = with_workers(with_instances(found, instance_counts), worker_counts)
    found = found if task_counts is None else with_tasks(found, task_counts)
    return found if late_ms is None else with_late_answers(found, late_ms)
