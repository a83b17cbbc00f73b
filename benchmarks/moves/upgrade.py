"""A rolling restart of three instances from one stage to another, and back, under load.

Each instance in turn is stopped cleanly and started at the other stage, with its state directory; the next one follows
when the tasks are shared again and standbys have caught up.

| figure | what |
|---|---|
| away | from the request to stop until a thread of the next process joined the group |
| took | from that request until the last assignment |
| before | the longest time without an output of a task, in the 5 s before |
| its gap, others' gap | the same from the request on, of the instance's tasks, and of all others |
| generations | of the group, by the restart |
| ghosts | members of the group that no thread of a running process is, a second after its last one joined |
| moved | tasks that have another instance than before; *others'*: from one that stayed to one that stayed |
| tails, restored | changelog records that were read between taking a task over and running it: its tail, and more |

A tail is what was written since the request, at the feeder's rate, and the records that standbys may have lagged before
it. What a task restores above that is no tail.

*Guarantees*: gaps are what a reader of committed outputs sees: commit interval and fetch are in them. A run counts only
when all inputs have outputs and, under exactly once, none has two.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from rich.table import Table

from benchmarks.cluster import CALL_S, FOREVER, Cluster
from benchmarks.errors import BenchmarkError
from benchmarks.job import EXACTLY_ONCE
from benchmarks.moves.group import Group
from benchmarks.moves.timeline import joined, longest_gap, owners, restored, worst
from benchmarks.moves.traffic import Feeder, Reader, Values, state, thread
from benchmarks.moves.work import AFTER_S, BEFORE_S, COMMIT_INTERVAL_MS, NAMES, TIMEOUT_S, TRANSACTION_TIMEOUT_MS
from benchmarks.report import columns

GHOSTS_AFTER_S = 1.0
CALM_S = 0.5
"""The longest time without an output of a task, in the 5 s before, with which the first instance is stopped: standbys
that have just read all of the state still write it to the disk."""
CAUGHT_UP = 100
"""Records that each standby may lag behind when the next instance is stopped."""
RECOVERY_LAG = 10_000
"""`acceptable_recovery_lag` by default. A static member that comes back with a larger lag loses tasks to standbys."""
SESSION_TIMEOUT_MS = 30_000
"""A static member that comes back later than this would be taken for dead."""
HEADINGS = (
    "to", "instance", "guarantee", "away s", "took s", "before s", "its gap s", "others' gap s", "generations",
    "ghosts", "moved", "others'", "tails", "restored",
)  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """Instances of `threads` threads each; `records` keys of `value_bytes`; then `rate` records a second in each of the
    partitions. `static`: members are. `stages`: from, to."""

    stages: tuple[str, str]
    guarantee: str
    records: int
    value_bytes: int
    rate: float
    recovery_lag: int
    seed: int
    threads: int
    standbys: int
    static: bool

    @property
    def partitions(self) -> int:
        """As many as there are threads."""
        return self.threads * len(NAMES)


@dataclass(frozen=True)
class Restart:
    """What one restart has cost, see above. Times in s; `moved`, `moved_of_others`: tasks; then records."""

    to: str
    instance: str
    guarantee: str
    away: float
    took: float
    before: float
    its_gap: float
    others_gap: float
    generations: int
    ghosts: int
    moved: int
    moved_of_others: int
    tails: int
    restored: int


class Upgrade:
    """There and back under one guarantee, with everything fresh."""

    def __init__(self, cluster: Cluster, directory: Path, setup: Setup, log: Callable[[str], None]) -> None:
        self._cluster, self._setup, self._log = cluster, setup, log
        self._app = f"upgrade-{setup.guarantee.replace('_', '-')}"
        self._source, self._output = f"{self._app}-input", f"{self._app}-output"
        servers, partitions = cluster.bootstrap_servers, setup.partitions
        for topic in (self._source, self._output):
            cluster.create(topic, partitions, FOREVER)
        self._values = Values(setup.value_bytes, setup.seed)
        self._feeder = Feeder(servers, self._source, setup.records, self._values, setup.rate, partitions)
        self._group = Group(
            directory, self._settings(), self._source, self._output, tasks=partitions, static=setup.static
        )
        self._group.standbys = setup.standbys
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def _settings(self) -> dict[str, object]:
        return {
            "application_id": self._app,
            "bootstrap_servers": self._cluster.bootstrap_servers,
            "processing_guarantee": self._setup.guarantee,
            "num_stream_threads": self._setup.threads,
            "acceptable_recovery_lag": self._setup.recovery_lag,
            "commit_interval_ms": COMMIT_INTERVAL_MS,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "metrics_port": 0,
        }

    def measure(self) -> Iterator[Restart]:
        """Each restart, there and back. `BenchmarkError` when one isn't over in time, or outputs are wrong."""
        setup, group = self._setup, self._group
        first, second = setup.stages
        with group, self._cluster.committed(self._app, self._source) as committed:
            self._cluster.fill(state(self._source, setup.records, self._values, setup.partitions))
            group.start(*NAMES, milestones=first)
            group.wait(lambda: committed() >= setup.records, "the state is there", TIMEOUT_S)
            self._settle()
            if setup.records < setup.recovery_lag * setup.partitions:
                self._log("a task has fewer records than acceptable_recovery_lag: without any it counts as caught up")
            self._log(f"{setup.records * setup.value_bytes / 1e9:.2f} GB of state, standbys have it too")
            reader = Reader(self._cluster.bootstrap_servers, self._output, setup.partitions)
            with thread(reader, "reader"), thread(self._feeder, "feeder"):
                self._feeder.on.set()
                group.wait(lambda: all(reader.seen), "each task puts out", TIMEOUT_S)
                group.wait(lambda: _gap_before(time.time(), reader.seen) <= CALM_S, "outputs come evenly", TIMEOUT_S)
                for stage in (second, first):
                    for name in NAMES:
                        yield self._restart(name, stage, reader.seen)
                        self._settle()
            fed = setup.records + self._feeder.given
            group.wait(lambda: committed() >= fed, "all inputs are committed", TIMEOUT_S)
            group.stop(*NAMES)
        check(sum(1 for _ in self._cluster.read(self._output)), fed, setup.guarantee)

    def _settle(self) -> None:
        self._group.settle(TIMEOUT_S)
        self._group.caught_up(CAUGHT_UP, TIMEOUT_S)

    def _restart(self, name: str, stage: str, seen: Sequence[Sequence[float]]) -> Restart:
        group = self._group
        time.sleep(BEFORE_S)
        had, generation, start = owners(group.given()), self._generation(), time.time()
        group.stop(name)
        group.start(name, milestones=stage)
        group.wait(lambda: bool(self._joined(name)), f"{name} is back", TIMEOUT_S)
        group.wait(lambda: time.time() >= max(self._joined(name)) + GHOSTS_AFTER_S, "a second is over", TIMEOUT_S)
        ghosts = self._ghosts()
        group.settle(TIMEOUT_S)
        end = max(one.at for one in group.given().values() if one is not None)
        time.sleep(AFTER_S)
        now = owners(group.given())
        gaps = [longest_gap(times, start, end + AFTER_S) for times in seen]
        moved = [task for task, owner in had.items() if now.get(task) != owner]
        tails, more = split([restored(group.log(one), start) for one in group.processes], self._tail(end - start))
        return Restart(
            stage,
            name,
            self._setup.guarantee,
            away=min(self._joined(name)) - start,
            took=end - start,
            before=_gap_before(start, seen),
            its_gap=worst(gap for task, gap in enumerate(gaps) if had[task] == name),
            others_gap=worst(gap for task, gap in enumerate(gaps) if had[task] != name),
            generations=self._generation() - generation,
            ghosts=ghosts,
            moved=len(moved),
            moved_of_others=sum(name not in (had[task], now.get(task)) for task in moved),
            tails=tails,
            restored=more,
        )

    def _joined(self, name: str) -> list[float]:
        """When each thread of the instance's process joined."""
        return [*joined(self._group.log(name)).values()]

    def _tail(self, seconds: float) -> float:
        return CAUGHT_UP + self._setup.rate * seconds

    def _generation(self) -> int:
        return max(one.generation for one in self._group.given().values() if one is not None)

    def _ghosts(self) -> int:
        group = self._admin.describe_consumer_groups([self._app], request_timeout=CALL_S)[self._app].result(CALL_S)
        threads = {name: [*joined(self._group.log(name))] for name in self._group.processes}
        return ghosts([member.group_instance_id or member.client_id for member in group.members], threads)


def _gap_before(start: float, seen: Sequence[Sequence[float]]) -> float:
    return max(longest_gap(times, start - BEFORE_S, start) for times in seen)


def ghosts(members: Iterable[str], threads: Mapping[str, Sequence[str]]) -> int:
    """How many of the group's members no thread is: each thread, by instance, is one member. Static members are known
    by their ids: the broker keeps the client id that one had first."""
    living = [*members]
    for instance, names in threads.items():
        for name in names:
            for member in (f"{name}-consumer", f"{instance}-{number_of(name)}"):
                if member in living:
                    living.remove(member)
    return len(living)


def number_of(thread: str) -> int:
    """The number in a static member's id: a stream thread's own; 1 where one thread polls for its instance."""
    found = re.search(r"-(\d+)$", thread)
    return int(found[1]) if found else 1


def split(by_instance: Iterable[Mapping[int, int]], tail: float) -> tuple[int, int]:
    """The records that each task has restored on each instance: those up to a tail, those above."""
    counts = [count for restored in by_instance for count in restored.values()]
    above = sum(max(0, count - round(tail)) for count in counts)
    return sum(counts) - above, above


def check(outputs: int, inputs: int, guarantee: str) -> None:
    """`BenchmarkError` when outputs are missing or, under exactly once, are too many."""
    if outputs < inputs or (outputs > inputs and guarantee == EXACTLY_ONCE):
        raise BenchmarkError(f"{outputs:,} outputs of {inputs:,} inputs, under {guarantee}")


def table(title: str, restarts: Iterable[Restart]) -> Table:
    """A row per restart."""
    shown = columns(title, *HEADINGS, left=3)
    for one in restarts:
        times = (one.away, one.took, one.before, one.its_gap, one.others_gap)
        counts = (one.generations, one.ghosts, one.moved, one.moved_of_others, one.tails, one.restored)
        shown.add_row(one.to, one.instance, one.guarantee, *(f"{s:.2f}" for s in times), *map(str, counts))
    return shown
