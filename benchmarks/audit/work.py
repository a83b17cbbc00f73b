"""A count of millions of records in which four things went wrong, and an audit that has to find them.

What an application would have written is computed by a plain loop, and written with the flaws: a topic can't be changed
afterwards.

*Guarantees*: a run counts only when exactly what was planted is found.
*Assumes*: the broker is ours alone.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
from rich.table import Table

from benchmarks.cluster import COMPACTED, FOREVER, Cluster, Row
from benchmarks.errors import BenchmarkError
from benchmarks.report import columns
from milestones import StreamsBuilder, StreamsConfig, Topology, serdes
from milestones.common.partitioner import partition_of

if TYPE_CHECKING:
    from milestones.pipeline.audit import AuditReport

APPLICATION, STORE = "audited", "counts"
INPUT, OUTPUT = f"{APPLICATION}-input", f"{APPLICATION}-output"
CHANGELOG = f"{APPLICATION}-{STORE}-changelog"
PARTITIONS = 4
VALUE = b"x" * 20

_long = struct.Struct(">q").pack


@dataclass(frozen=True)
class Planted:
    """What went wrong, by key."""

    lost: str
    duplicate: str
    swapped: tuple[str, str]
    wrong_entry: str


def topology() -> Topology:
    """What is audited."""
    builder = StreamsBuilder()
    stream = builder.stream(INPUT, key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key().count(STORE).to_stream().to(OUTPUT, value=serdes.LONG)
    return builder.build()


def plant(cluster: Cluster, records: int, keys: int, seed: int, log: Callable[[str], None]) -> Planted:
    """Write input, output and changelog, and commit."""
    for topic, settings in ((INPUT, FOREVER), (OUTPUT, FOREVER), (CHANGELOG, COMPACTED)):
        cluster.create(topic, PARTITIONS, settings)
    now_ms = int(time.time() * 1000) - records
    inputs = partial(_inputs, records, keys, seed, now_ms)
    began = time.monotonic()
    cluster.fill((INPUT, number, key, VALUE, at, None) for number, key, at in inputs())
    rng = random.Random(seed)
    lost, twice, swapped = sorted(rng.sample(range(records // 10, records - records // 10), 3))
    writer = _Flawed(inputs(), lost, twice, swapped)
    cluster.fill(writer.outputs())
    cluster.fill(_changelog(inputs(), writer))
    _commit(cluster, writer.sizes)
    log(f"{records:,} records of input, as many of output and changelog: {time.monotonic() - began:.0f} s")
    return Planted(writer.lost, writer.duplicate, writer.swapped, writer.wrong_entry)


Input = tuple[int, bytes, int]
"""Partition, key, timestamp."""


def _inputs(records: int, keys: int, seed: int, now_ms: int) -> Iterator[Input]:
    rng = random.Random(seed)
    for number in range(records):
        key = b"key-%07d" % rng.randrange(keys)
        yield partition_of(key, PARTITIONS), key, now_ms + number


class _Flawed:
    """Counts, and writes what it counts, but for three flaws."""

    def __init__(self, inputs: Iterator[Input], lost: int, twice: int, swapped: int) -> None:
        self._inputs, self._lost, self._twice, self._swapped = inputs, lost, twice, swapped
        self.counts: dict[bytes, int] = {}
        self.sizes = [0] * PARTITIONS
        self.lost = self.duplicate = self.wrong_entry = ""
        self.swapped = ("", "")

    def outputs(self) -> Iterator[Row]:
        """The output topic's records."""
        held: Row | None = None
        for number, (partition, key, at) in enumerate(self._inputs):
            count = self.counts[key] = self.counts.get(key, 0) + 1
            self.sizes[partition] += 1
            row: Row = (OUTPUT, partition, key, _long(count), at, None)
            if number == self._lost:
                self.lost = key.decode()
            elif number == self._swapped:
                held = row
            elif held is not None and held[1] == partition:
                self.swapped = (key.decode(), (held[2] or b"").decode())
                yield row
                yield held
                held = None
            else:
                yield row
                if number == self._twice:
                    self.duplicate = key.decode()
                    yield row
        self.wrong_entry = min(self.counts).decode()


def _changelog(inputs: Iterator[Input], writer: _Flawed) -> Iterator[Row]:
    counts: dict[bytes, int] = {}
    wrong = writer.wrong_entry.encode()
    for partition, key, at in inputs:
        count = counts[key] = counts.get(key, 0) + 1
        flawed = key == wrong and count == writer.counts[key]
        yield CHANGELOG, partition, key, _long(count + flawed), at, None


def _commit(cluster: Cluster, sizes: list[int]) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": APPLICATION})
    positions = [TopicPartition(INPUT, number, size) for number, size in enumerate(sizes)]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def measure(cluster: Cluster, memory: str, report: Path | None, log: Callable[[str], None]) -> AuditReport:
    """The audit, in a session of its own."""
    from milestones.pipeline import spark_session
    from milestones.pipeline.audit import audit
    from milestones.pipeline.audit.page import write_page

    config = StreamsConfig(
        application_id=APPLICATION, bootstrap_servers=cluster.bootstrap_servers, processing_guarantee="exactly_once_v2"
    )
    with spark_session("audit", settings={"spark.driver.memory": memory}) as spark:
        spark.range(1).count()
        found = audit(topology(), spark, config=config)
    log(f"audited in {found.seconds:.0f} s: {found.records / found.seconds:,.0f} input records/s")
    if report is not None:
        write_page(found, report)
    return found


def expected(planted: Planted) -> dict[str, tuple[str, ...]]:
    """Keys by what should be told of them."""
    return {
        "lost": (planted.lost,),
        "duplicate": (planted.duplicate,),
        "reordered": planted.swapped,
        "wrong": (planted.wrong_entry,),
    }


def table(title: str, planted: Planted, found: AuditReport) -> Table:
    """What was planted beside what was found."""
    pace = f"{found.seconds:.0f} s, {found.records / found.seconds:,.0f} input records/s"
    headings = ("planted", "of the key", "found", "where", "should be", "is")
    shown = columns(f"{title}; {pace}", *headings, left=len(headings), title_at="center")
    examples = [example for one in [*found.topics, *found.stores] for example in one.examples]
    for what, keys in expected(planted).items():
        told = [(one.key, one.where, one.expected, one.actual) for one in examples if one.problem.value == what]
        for cells in told or [("nothing", "", "", "")]:
            shown.add_row(what, " or ".join(keys), *cells)
    return shown


def check(planted: Planted, found: AuditReport) -> None:
    """`BenchmarkError` when anything else was found, or something wasn't."""
    examples = [example for one in [*found.topics, *found.stores] for example in one.examples]
    told = sorted((example.problem.value, example.key.strip("'")) for example in examples)
    wanted = expected(planted)
    missing = [what for what, keys in wanted.items() if not any((what, key) in told for key in keys)]
    if missing or found.wrong != len(wanted) or found.doubtful:
        raise BenchmarkError(f"{found.wrong} problems were found ({told}), missing are {missing or 'none'}")
