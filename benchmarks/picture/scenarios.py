"""What the contenders do, one scenario after the other. An axis is one count, varied in one way.

*Guarantees*: pure functions of options, but for the works that they make.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.cluster import Cluster
from benchmarks.count.data import VALUE_BYTES
from benchmarks.count.work import Count
from benchmarks.fed import Fresh
from benchmarks.latency.work import Latency
from benchmarks.restore.work import Restore
from benchmarks.spark.work import OnSpark
from benchmarks.windows import HOPPING, SESSIONS, STATELESS, STREAM_JOIN, SUPPRESS, TABLE_JOIN, TUMBLING
from benchmarks.windows.work import Windows

PARTITIONS, BYTES, KEYS, RATE = "partitions", "bytes per record", "keys", "records/s"
ON_SPARK: Final = "spark"
"""The scenario with contenders of its own."""
ZIPF: Final = 1.0
LEAST: Final = 20
"""Of larger records there are fewer, but not less than the twentieth part."""
RECORDS_PER_S: Final = "records_per_s"
WINDOW_KEYS: Final = 10_000
"""So that a key has several records in a minute of the records' time."""


@dataclass(frozen=True)
class Sizes:
    """How much is done; every number is an option of the command."""

    records: int
    keys: int
    seed: int
    commit_interval_ms: int
    seconds: int
    warm: int
    partition_counts: Sequence[int]
    record_bytes: Sequence[int]
    key_counts: Sequence[int]
    rates: Sequence[int]


@dataclass(frozen=True)
class Scenario:
    """`programs`: the work whose programs the contenders have; `at`: where it is on which axes; `shown`: the figure
    that is drawn."""

    name: str
    title: str
    programs: str
    make: Callable[[Cluster, Path], Fresh]
    at: Mapping[str, int] = field(default_factory=dict)
    shown: str = "warm_records_per_s"


def scenarios(sizes: Sizes) -> list[Scenario]:
    """All of them, in the order in which they are done and shown."""
    base = {PARTITIONS: Count.partitions, BYTES: VALUE_BYTES, KEYS: sizes.keys}
    counted = "count and sum per key"
    return [
        _windows(sizes, STATELESS, "a filter and a map, without state"),
        _count(sizes, "count", f"{counted}, evenly", at=base),
        _count(sizes, "count-zipf", f"{counted}, by Zipf's law", zipf=ZIPF),
        _windows(sizes, TUMBLING, "a count per key and minute"),
        _windows(sizes, HOPPING, "a count per key and minute, each 15 seconds"),
        _windows(sizes, SUPPRESS, "a count per key and minute, when the minute is over"),
        _windows(sizes, SESSIONS, "a count per key and session"),
        _windows(sizes, TABLE_JOIN, "a stream joined with a table"),
        _windows(sizes, STREAM_JOIN, "two streams, joined"),
        Scenario(
            "restore", "restoring a store", "restore", _made(Restore, sizes.records, sizes.seed), shown=RECORDS_PER_S
        ),
        *(_latency(sizes, rate) for rate in sizes.rates),
        *(
            _count(sizes, f"count-{one}-partitions", f"{counted}, {one} partitions", {PARTITIONS: one}, partitions=one)
            for one in sizes.partition_counts if one != base[PARTITIONS]
        ),
        *(
            _count(sizes, f"count-{one}-bytes", f"{counted}, {one:,} bytes a record", {BYTES: one}, value_bytes=one)
            for one in sizes.record_bytes if one != base[BYTES]
        ),
        *(
            _count(sizes, f"count-{one}-keys", f"{counted}, {one:,} keys", {KEYS: one}, keys=one)
            for one in sizes.key_counts if one != base[KEYS]
        ),
        Scenario(
            ON_SPARK, "a running count on Spark", ON_SPARK, _made(OnSpark, sizes.records, sizes.keys, sizes.seed),
            shown=RECORDS_PER_S,
        ),
    ]  # fmt: skip


def _made(kind: Callable[..., Fresh], *sizes: float) -> Callable[[Cluster, Path], Fresh]:
    return lambda cluster, runs: kind(cluster, runs, *sizes)


def _count(
    sizes: Sizes, name: str, title: str, at: Mapping[str, int] | None = None, *, keys: int = 0,
    partitions: int = Count.partitions, value_bytes: int = VALUE_BYTES, zipf: float = 0.0,
) -> Scenario:  # fmt: skip
    records = max(sizes.records * VALUE_BYTES // max(VALUE_BYTES, value_bytes), sizes.records // LEAST)
    numbers = (records, keys or sizes.keys, sizes.seed, sizes.commit_interval_ms, partitions, value_bytes, zipf)
    return Scenario(name, title, "count", _made(Count, *numbers), at or {})


def _windows(sizes: Sizes, kind: str, title: str) -> Scenario:
    work = partial(Windows, kind=kind, records=sizes.records, keys=min(sizes.keys, WINDOW_KEYS), seed=sizes.seed,
                   commit_interval_ms=sizes.commit_interval_ms)  # fmt: skip
    return Scenario(kind, title, f"windows-{kind}", lambda cluster, runs: work(cluster, runs))


def _latency(sizes: Sizes, rate: int) -> Scenario:
    make = _made(Latency, rate, sizes.seconds, sizes.warm, sizes.seed)
    return Scenario(f"latency-{rate}", f"latency at {rate:,} records/s", "latency", make, {RATE: rate}, "p99_ms")

