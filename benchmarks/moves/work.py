"""The moves, one after the other, in one group, each with its gap and with what was restored.

| move | what happens |
|---|---|
| scale-out | one instance has all; two more join, and warm up |
| scale-in | three instances with a standby each; one is stopped under load, another while nothing comes in |
| kill | one of three is killed under load |

*Guarantees*: gaps are what a reader of committed outputs sees: commit interval and fetch are in them.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.cluster import FOREVER, Cluster
from benchmarks.moves import PARTITIONS, STORE
from benchmarks.moves.group import Group
from benchmarks.moves.timeline import Parts, assignments, gap_around, longest_gap, owners, parts, restored, worst
from benchmarks.moves.traffic import Feeder, Reader, Stable, Values, state, thread
from benchmarks.report import columns

TIMEOUT_S = 400.0
BEFORE_S = 5.0
"""How long the tasks run before they move: their longest gap then is what a move's is to be compared with."""
AFTER_S = 2.0
QUIET_S = 3.0
RECOVERY_LAG = 100
"""`acceptable_recovery_lag` unless something else is said: low, so that moves are of tasks that have caught up."""
COMMIT_INTERVAL_MS = 100
SESSION_TIMEOUT_MS = 10_000
TRANSACTION_TIMEOUT_MS = 10_000
FIRST, SECOND, THIRD = NAMES = ("one", "two", "three")
HEADINGS = (
    "move", "guarantee", "took s", "gap before s", "longest gap s", "median gap s", "others' gap s", "restored",
    "session s", "transaction s", "rest s",
)  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """`records` keys of `value_bytes` each; then `rate` records a second in each of the partitions."""

    records: int
    value_bytes: int
    rate: float
    recovery_lag: int
    seed: int
    guarantee: str


@dataclass(frozen=True)
class Move:
    """What one move has cost. Times in s. `before`: the longest gap of the same tasks before it; `gaps`, `restored`:
    by moved task; `others`: the longest gap of a task that stayed; `parts`: of each killed task's gap."""

    name: str
    guarantee: str
    took: float
    before: float
    gaps: Mapping[int, float]
    restored: Mapping[int, int]
    others: float | None
    parts: Sequence[Parts] = field(default=())

    @property
    def longest(self) -> float | None:
        return max(self.gaps.values(), default=None)

    @property
    def middle(self) -> float | None:
        return median(self.gaps.values()) if self.gaps else None


class Moves:
    """All moves under one guarantee, with everything fresh."""

    def __init__(self, cluster: Cluster, directory: Path, setup: Setup, log: Callable[[str], None]) -> None:
        self._cluster, self._setup, self._log = cluster, setup, log
        self._app = f"moves-{setup.guarantee.replace('_', '-')}"
        self._source, self._output = f"{self._app}-input", f"{self._app}-output"
        values = Values(setup.value_bytes, setup.seed)
        servers = cluster.bootstrap_servers
        for topic in (self._source, self._output):
            cluster.create(topic, PARTITIONS, FOREVER)
        self._values = values
        self._feeder = Feeder(servers, self._source, setup.records, values, setup.rate)
        self._group = Group(directory, self._settings(), self._source, self._output)
        self._reader: Reader | None = None

    def _settings(self) -> dict[str, object]:
        return {
            "application_id": self._app,
            "bootstrap_servers": self._cluster.bootstrap_servers,
            "processing_guarantee": self._setup.guarantee,
            "num_stream_threads": 1,
            "acceptable_recovery_lag": self._setup.recovery_lag,
            "commit_interval_ms": COMMIT_INTERVAL_MS,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "metrics_port": 0,
        }

    def measure(self) -> Iterator[Move]:
        """All moves. `BenchmarkError` when one isn't over in time."""
        with self._group:
            self._fill()
            self._reader = Reader(self._cluster.bootstrap_servers, self._output)
            with thread(self._reader, "reader"), thread(self._feeder, "feeder"):
                self._feeder.on.set()
                yield self._move("scale-out 1 to 3", lambda: self._group.start(SECOND, THIRD))
                self._with_standbys()
                yield self._move("scale-in, under load", lambda: self._group.stop(THIRD))
                self._back(THIRD)
                yield self._quiet_move()
                self._back(SECOND)
                yield self._killed(SECOND)

    def _fill(self) -> None:
        setup, group = self._setup, self._group
        began = time.monotonic()
        self._cluster.fill(state(self._source, setup.records, self._values))
        self._log(f"{setup.records * setup.value_bytes / 1e9:.2f} GB of input in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        group.start(FIRST)
        with self._cluster.committed(self._app, self._source) as committed:
            group.wait(lambda: committed() >= setup.records, "the state is there", TIMEOUT_S)
        self._log(f"and of state in {time.monotonic() - began:.0f} s more")

    def _with_standbys(self) -> None:
        """Everybody again, with standbys."""
        self._group.stop(*self._group.processes)
        self._group.standbys = 1
        self._back(*NAMES)

    def _back(self, *names: str) -> None:
        began = time.monotonic()
        self._group.start(*names)
        self._group.settle(TIMEOUT_S)
        self._group.caught_up(self._setup.recovery_lag, TIMEOUT_S)
        self._log(f"{', '.join(names)} back, with standbys, after {time.monotonic() - began:.0f} s")

    def _move(self, name: str, change: Callable[[], object]) -> Move:
        """Under load."""
        group = self._group
        time.sleep(BEFORE_S)
        had, start = owners(group.given()), time.time()
        change()
        group.settle(TIMEOUT_S)
        end = max(one.at for one in group.given().values() if one is not None)
        time.sleep(AFTER_S)
        moved = self._moved(had)
        gaps = [longest_gap(times, start, end + AFTER_S) for times in self._seen()]
        return Move(
            name,
            self._setup.guarantee,
            end - start,
            max(longest_gap(self._seen()[task], start - BEFORE_S, start) for task in moved),
            {task: gaps[task] for task in moved},
            self._restored(moved, start),
            max((gap for task, gap in enumerate(gaps) if task not in moved), default=None),
        )

    def _quiet_move(self) -> Move:
        """While nothing comes in: what matters is what is restored."""
        group = self._group
        with self._quiet():
            had, start = owners(group.given()), time.time()
            group.stop(SECOND)
            group.settle(TIMEOUT_S)
            end = max(one.at for one in group.given().values() if one is not None)
        moved = self._moved(had)
        return Move("scale-in, quiet", self._setup.guarantee, end - start, 0.0, {}, self._restored(moved, start), None)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        self._feeder.on.clear()
        time.sleep(QUIET_S)
        self._group.caught_up(0, TIMEOUT_S)
        yield
        self._feeder.on.set()

    def _killed(self, victim: str) -> Move:
        group, setup = self._group, self._setup
        time.sleep(BEFORE_S)
        had, start = owners(group.given()), time.time()
        group.kill(victim)
        stable = Stable(self._cluster.bootstrap_servers, f"{self._app}-{STORE}-changelog")
        lost = [task for task, name in had.items() if name == victim]
        before = {task: len(self._seen()[task]) for task in lost}
        with thread(stable, "stable offsets"):
            group.settle(TIMEOUT_S)
            again = lambda: all(len(self._seen()[task]) > before[task] + setup.rate for task in lost)  # noqa: E731
            group.wait(again, "the killed instance's tasks put out again", TIMEOUT_S)
        now = owners(group.given())
        split = {task: self._parts(task, now[task], start, stable.at.get(task, start)) for task in lost}
        stayed = [longest_gap(self._seen()[task], start, time.time()) for task in had if task not in lost]
        return Move(
            "kill -9",
            setup.guarantee,
            max(given.at for given in group.given().values() if given is not None) - start,
            max(longest_gap(self._seen()[task], start - BEFORE_S, start) for task in lost),
            {task: one.gap for task, one in split.items()},
            self._restored({task: now[task] for task in lost}, start),
            max(stayed, default=None),
            tuple(split.values()),
        )

    def _parts(self, task: int, owner: str, killed: float, ended: float) -> Parts:
        last, first = gap_around(self._seen()[task], killed + SESSION_TIMEOUT_MS / 2000)
        given = [one.at for one in assignments(self._group.log(owner)) if one.at > killed and task in one.active]
        return parts(last, given[0], ended, first)

    def _seen(self) -> list[list[float]]:
        assert self._reader is not None
        return self._reader.seen

    def _moved(self, had: Mapping[int, str]) -> dict[int, str]:
        """Tasks with another owner than then, with that."""
        return {task: name for task, name in owners(self._group.given()).items() if had.get(task) != name}

    def _restored(self, moved: Mapping[int, str], since: float) -> dict[int, int]:
        return {task: restored(self._group.log(name), since).get(task, 0) for task, name in moved.items()}


def table(title: str, moves: Sequence[Move]) -> Table:
    """A row per move. `restored`: records at the take-over, by moved task."""
    shown = columns(title, *HEADINGS)
    for move in moves:
        shown.add_row(*_cells(move))
    return shown


def _cells(move: Move) -> list[str]:
    times = [move.took, move.before, move.longest, move.middle, move.others]
    parts = [worst(getattr(one, name) for one in move.parts) for name in ("session", "transaction", "rest")]
    return [
        move.name,
        move.guarantee,
        *("-" if value is None else f"{value:.2f}" for value in times),
        " ".join(map(str, move.restored.values())) or "-",
        *(f"{value:.2f}" if move.parts else "-" for value in parts),
    ]
