"""What a read of a store costs: `get`, ranges and prefix scans through a typed store, on each engine.

*Guarantees*: needs no broker. CPU time of this thread, so that other work on the machine counts little; engines take
turns, in an order shuffled anew for each round. Rows are counted: a scan that gives others is an error.
*Assumes*: everything is committed, so that the engine answers; its blocks are in its cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.errors import BenchmarkError
from milestones.common import serdes
from milestones.common.records import Headers, TaskId
from milestones.common.state.cells import Cells
from milestones.common.state.changelog import not_logged
from milestones.common.state.engine import Engine
from milestones.common.state.engines.by_name import ENGINES, open_engines
from milestones.common.state.layers import StoreLayers
from milestones.common.state.read_cache import ReadCache, ReadCaches
from milestones.common.state.spec import StoreSpec
from milestones.common.state.steps import steps
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.rows import StoreParts

NAMES = tuple(ENGINES)
SPANS = (10, 1_000, 100_000)
MIN_ROWS = 2 * SPANS[-1]
_ROWS_A_ROUND = 20_000
_PREFIX_ROWS = 1_000

Rows = dict[str, list[float]]
"""By read: microseconds per row, one of each round."""


class _Record:
    timestamp = 0
    headers: Headers | None = None
    metadata = None


@dataclass(frozen=True)
class Read:
    """A way to read. `rows`: of one call; `reading(first)`: what gives `rows` rows, from the one with that number."""

    name: str
    rows: int
    reading: Callable[[Filled, int], Iterator[object]]


class Filled:
    """A store with `rows` rows of 13 byte keys and 100 byte values, all of them in the engine."""

    def __init__(self, engines: str, directory: Path, rows: int, seed: int) -> None:
        self.rows, opener = rows, open_engines(engines)
        engine = opener.open(directory)
        self._fill(engine, random.Random(seed))
        if engines != "memory":  # what a new process finds: everything in table files
            engine.close()
            engine = opener.open(directory)
        self.engine, self._cache = engine, ReadCache(ReadCaches())
        layers = StoreLayers(engine.open("store"), [], self._cache)
        text = serdes.STRING
        task, spec = TaskId(0, 0), StoreSpec("store")
        parts = StoreParts(task, layers, self._cache, text, text, "topic", not_logged, _Record(), spec, Cells([]))
        self.store = KeyValueStore(parts)
        self.store.open()

    def _fill(self, engine: Engine, dice: random.Random) -> None:
        engine.open("store")
        content: dict[bytes, bytes | None] = {
            key(number).encode(): dice.randbytes(50).hex().encode() for number in range(self.rows)
        }
        for step in steps(content):
            engine.apply({"store": step}, {})

    def forget(self) -> None:
        """Have the engine asked again."""
        self._cache.clear()


def key(number: int) -> str:
    return f"user-{number:08}"


def _gets(filled: Filled, first: int) -> Iterator[object]:
    get = filled.store.get
    return (get(key(number % filled.rows)) for number in range(first, first + 7919 * _PREFIX_ROWS, 7919))


def _range(rows: int, *, reverse: bool) -> Callable[[Filled, int], Iterator[object]]:
    def reading(filled: Filled, first: int) -> Iterator[object]:
        scan = filled.store.reverse_range if reverse else filled.store.range
        return scan(key(first), key(first + rows - 1))

    return reading


def _prefix(filled: Filled, first: int) -> Iterator[object]:
    return filled.store.prefix_scan(key(first)[:-3])


READS = (
    Read("get", _PREFIX_ROWS, _gets),
    *(Read(f"range of {rows:,}", rows, _range(rows, reverse=False)) for rows in SPANS),
    *(Read(f"reverse_range of {rows:,}", rows, _range(rows, reverse=True)) for rows in SPANS),
    Read(f"prefix_scan of {_PREFIX_ROWS:,}", _PREFIX_ROWS, _prefix),
)


def measure(
    names: Sequence[str], directory: Path, rows: int, rounds: int, seed: int, log: Callable[[str], None]
) -> dict[str, Rows]:
    """By engine. `BenchmarkError` when a read gives other rows than it should."""
    if rows < MIN_ROWS:
        raise BenchmarkError(f"{rows} rows are too few for ranges of {SPANS[-1]:,}: at least {MIN_ROWS:,}")
    filled = {}
    for name in names:
        log(f"{name}: {rows:,} rows are written")
        filled[name] = Filled(name, directory / name, rows, seed)
    found: dict[str, Rows] = {name: {read.name: [] for read in READS} for name in names}
    dice = random.Random(seed)
    try:
        for number in range(rounds + 1):
            log(f"round {number} of {rounds}" if number else "warming up")
            for name in dice.sample(names, len(names)):
                for read in READS:
                    us = _time(filled[name], read, dice)
                    if number:
                        found[name][read.name].append(us)
    finally:
        for each in filled.values():
            each.engine.close()
    return found


def _time(filled: Filled, read: Read, dice: random.Random) -> float:
    """Microseconds of CPU time per row."""
    calls = max(1, _ROWS_A_ROUND // read.rows)
    whole = _PREFIX_ROWS  # a prefix scan begins at a thousand
    firsts = [dice.randrange((filled.rows - read.rows) // whole + 1) * whole for _ in range(calls)]
    filled.forget()
    began, rows = time.thread_time(), 0
    for first in firsts:
        rows += sum(1 for row in read.reading(filled, first) if row is not None)
    taken = time.thread_time() - began
    if rows != calls * read.rows:
        raise BenchmarkError(f"{read.name} gave {rows} rows in {calls} calls instead of {calls * read.rows}")
    return taken * 1e6 / rows


def table(title: str, found: dict[str, Rows]) -> Table:
    shown = Table(title=title)
    shown.add_column("µs per row")
    for name in found:
        shown.add_column(name, justify="right")
    for read in READS:
        shown.add_row(read.name, *(f"{median(rows[read.name]):.2f}" for rows in found.values()))
    return shown
