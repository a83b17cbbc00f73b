"""What it costs to take an instance's state into ranges, as its first start as m6 does, and to give it out again.

The state is made as tasks make it: 16-byte keys, 100-byte values, in stores of their own. Each round takes it in and
gives it out. A time is that of the state manager's making: the start of helper processes is in it, that of the
instance isn't. A last round has each conversion killed at random moments, if there are to be kills.

*Guarantees*: needs no broker. CPU time is that of this process and of its helpers. A conversion counts only when each
store has the same entries and the same offset afterwards, byte by byte.
*Assumes*: the system keeps the files in its memory: reading from a cold disk comes on top.
"""

from __future__ import annotations

import hashlib
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

from rich.table import Table

from benchmarks.convert.kills import Killed, convert_killed
from benchmarks.errors import BenchmarkError
from benchmarks.report import columns
from milestones.common.records import TaskId
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engine import Batch, Engines
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.manifest import FOLDERS, RANGES
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.common.state.task_storage import ROCKSDB
from milestones.m6_state_manager.conversion.all_tasks import folder_state_manager
from milestones.m6_state_manager.manager import RangeStateManager
from milestones.m6_state_manager.reading import on_disk

IN, OUT = "into ranges", "into folders"
APPLICATION: Final = "convert"
VALUE_BYTES: Final = 100
BATCH: Final = 2_000
UNIT: Final = 10_000_000
"""The entries that the goal speaks of."""
GOAL_S: Final = 25.0
"""For so many entries, on two cores."""

Content = Mapping[tuple[TaskId, str], tuple[int | None, int, str]]
"""By task and store: its offset, the number of entries, and what stands for all of them."""
Convert = Callable[[StateDirectory, Engines], None]


@dataclass(frozen=True)
class Conversion:
    """One of them. `cpu_s`: of this process and its helpers."""

    way: str
    entries: int
    seconds: float
    cpu_s: float

    @property
    def entries_per_s(self) -> float:
        return self.entries / self.seconds

    def per_unit(self, seconds: float) -> float:
        """So many seconds of this conversion by `UNIT`."""
        return seconds * UNIT / self.entries

    def __str__(self) -> str:
        return f"{self.way}: {self.entries_per_s:,.0f} entries/s, {self.cpu_s * 1e6 / self.entries:.2f} CPU s/million"


def measure(
    directory: Path,
    entries: int,
    tasks: int,
    stores: int,
    rounds: int,
    seed: int,
    log: Callable[[str], None],
    kills: int = 0,
) -> tuple[list[Conversion], list[Killed]]:
    """All conversions, and those of a round in which each is killed so often. `BenchmarkError` when one changes
    something."""
    engines = open_engines("rocksdict")
    home = StateDirectory(directory, APPLICATION)
    try:
        _fill(home, engines, entries, tasks, stores, seed)
        expected = _content(home.path, engines, FOLDERS)
        count = sum(entries for _, entries, _ in expected.values())
        log(f"{count:,} entries in {len(expected)} stores")
        found: list[Conversion] = []
        for _ in range(rounds):
            for way in (IN, OUT):
                seconds, cpu_s = _timed(WAYS[way], home, engines)
                _must_be(expected, home.path, engines, way)
                found.append(Conversion(way, count, seconds, cpu_s))
                log(str(found[-1]))
    finally:
        home.close()
    killed: list[Killed] = []
    for way in (IN, OUT) if kills else ():
        usual_s = median(one.seconds for one in found if one.way == way)
        converted = partial(_converted, home.path, way, tasks)
        killed.append(convert_killed(way, directory, kills, usual_s, random.Random(seed), converted))
        _must_be(expected, home.path, engines, way)
        log(f"{killed[-1]}; 0 of {count:,} entries lost")
    return found, killed


def _must_be(expected: Content, path: Path, engines: Engines, way: str) -> None:
    """`BenchmarkError` when what lies there after a conversion isn't what there was."""
    found = _content(path, engines, RANGES if way == IN else FOLDERS)
    lost = sum(content[1] for place, content in expected.items() if found.get(place) != content)
    if found != expected:
        raise BenchmarkError(f"{way}: the entries or the offsets aren't what they were, in stores of {lost:,} entries")


def _converted(path: Path, way: str, tasks: int) -> int:
    """How many of the tasks are: one that is in both layouts isn't, on its way into ranges."""
    folders = sum(1 for _ in path.glob(f"[0-9]*_*/{ROCKSDB}"))
    return tasks - folders if way == IN else folders


def _in(directory: StateDirectory, engines: Engines) -> None:
    RangeStateManager(directory, engines, "m6").release()


def _out(directory: StateDirectory, engines: Engines) -> None:
    folder_state_manager(directory, engines, "m5").release()


WAYS: Final[Mapping[str, Convert]] = {IN: _in, OUT: _out}


def convert_once(way: str, state_dir: Path, begins: Callable[[], object]) -> None:
    """Convert what is in the directory; `begins` is called before."""
    directory = StateDirectory(state_dir, APPLICATION)
    begins()
    WAYS[way](directory, open_engines("rocksdict"))
    directory.close()


def _timed(convert: Convert, directory: StateDirectory, engines: Engines) -> tuple[float, float]:
    """Its seconds, and those of CPU."""
    cpu_s, began = _cpu_s(), time.monotonic()
    convert(directory, engines)
    return time.monotonic() - began, _cpu_s() - cpu_s


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _fill(directory: StateDirectory, engines: Engines, entries: int, tasks: int, stores: int, seed: int) -> None:
    """Have so many entries in equal parts in the stores of these tasks, which a stage before m6 has closed."""
    dice, specs = random.Random(seed), [StoreSpec(f"store-{number}") for number in range(stores)]
    manager, part = LocalStateManager(directory, engines, "m5"), entries // (tasks * stores)
    for partition in range(tasks):
        storage = manager.open(TaskId(0, partition), specs, APPLICATION)
        for spec, batch in product(specs, _batches(dice, part)):
            storage.apply({spec.name: batch}, {spec.name: part})
        storage.close()
    manager.release()


def _batches(dice: random.Random, entries: int) -> Iterator[Batch]:
    """What a store has, in the order in which keys come: none."""
    numbers = dice.sample(range(entries), entries)
    for first in range(0, entries, BATCH):
        yield {b"key-%012d" % number: dice.randbytes(VALUE_BYTES) for number in numbers[first : first + BATCH]}


def _content(path: Path, engines: Engines, expected: str) -> Content:
    """What is on disk, all of it in the expected layout."""
    found: dict[tuple[TaskId, str], tuple[int | None, int, str]] = {}
    for layout, store in on_disk(path, engines):
        if layout != expected:
            raise BenchmarkError(f"store {store.store} of task {store.task} is in {layout} still")
        digest, count = hashlib.blake2b(digest_size=16), 0
        for key, value in store.entries:
            digest.update(key + value)
            count += 1
        found[store.task, store.store] = store.offset, count, digest.hexdigest()
    return found


def table(title: str, found: Sequence[Conversion]) -> Table:
    """Medians."""
    headings = "entries/s", "s per 10 million", f"of {GOAL_S:.0f} s", "CPU s per 10 million", "CPU s/million"
    shown = columns(title, "", *headings, left=1)
    for way in WAYS:
        of = [one for one in found if one.way == way]
        seconds = median(one.per_unit(one.seconds) for one in of)
        cpu_s = median(one.per_unit(one.cpu_s) for one in of)
        shown.add_row(
            way, f"{UNIT / seconds:,.0f}", f"{seconds:.1f}", f"{seconds / GOAL_S:.0%}", f"{cpu_s:.1f}",
            f"{cpu_s * 1e6 / UNIT:.2f}",
        )  # fmt: skip
    return shown
