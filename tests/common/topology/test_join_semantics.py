"""Joins of two streams against Kafka Streams itself: reference/Joins.java wrote what each record leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from milestones import JoinWindows, StoreSpec, StreamsBuilder
from milestones.common import serdes
from milestones.testing import TopologyTestDriver

TEXT, BYTES = serdes.STRING, serdes.BYTES
OUTPUTS = ("inner", "left", "outer", "self", "instant", "rekeyed")
EXPECTED = Path(__file__).with_name("expected") / "joins.tsv"


def pair(left: str | None, right: str | None) -> str:
    return f"{left or '-'}+{right or '-'}"


def pair_with_key(key: str, left: str | None, right: str | None) -> str:
    return f"{key or 'null'}:{pair(left, right)}"


def windows(before: int, after: int, grace: int) -> JoinWindows:
    return JoinWindows(before * 1000, after * 1000, grace=grace * 1000)


def named(store: str) -> dict[str, str]:
    return {"store": store, "name": f"{store}-join"}


def program() -> StreamsBuilder:
    builder = StreamsBuilder()
    left, right = builder.stream("left-input"), builder.stream("right-input")
    left.join(right, pair, within=windows(30, 20, 10), **named("i")).to("inner")
    left.left_join(right, pair_with_key, within=windows(40, 20, 30), with_key=True, **named("l")).to("left")
    left.outer_join(right, pair, within=windows(20, 35, 15), **named("o")).to("outer")
    left.join(left, pair, within=windows(25, 25, 0), **named("s")).to("self")
    left.outer_join(right, pair, within=windows(0, 0, 1), **named("n")).to("instant")
    (
        left.select_key(lambda k, v: None if v is None or v.startswith("c") else k)
        .left_join(right.select_key(lambda k, v: k), pair, within=windows(40, -10, 5), **named("r"))
        .to("rekeyed")
    )
    return builder


def text(driver: TopologyTestDriver) -> Iterator[str]:
    for name in OUTPUTS:
        for key, value, timestamp, headers in driver.create_output_topic(name, key=TEXT, value=TEXT).read_records():
            numbers = ",".join(f"{header}={number.decode()}" for header, number in headers)
            yield "\t".join((name, key or "-", value, str(timestamp), numbers))
    for name in sorted(name for name in driver.produced() if name.endswith("-changelog")):
        store = name.removeprefix("app-").removesuffix("-changelog")
        for key, value, timestamp, _ in driver.create_output_topic(name, key=BYTES, value=BYTES).read_records():
            yield "\t".join((store, key.hex(), "-" if value is None else value.hex(), str(timestamp)))


def ordered(lines: Iterable[str]) -> Iterator[str]:
    """What one record leads to in a store of records without a partner, by key: a commit logs deletions last."""
    for store, some in groupby(lines, lambda line: line.partition("\t")[0]):
        rows = [*some]
        yield from sorted(rows) if store.endswith("-shared-join-store") else rows


class Kept:
    """Whether a line of Kafka Streams tells of a change. It logs, too, what its window stores don't take: records
    without a value, and late ones."""

    def __init__(self, specs: Iterable[StoreSpec]) -> None:
        self._stores = {spec.name: spec for spec in specs if spec.retention_ms}
        self._observed = dict.fromkeys(self._stores, 0)

    def __call__(self, line: str) -> bool:
        store, key, value, *_ = line.split("\t")
        spec = self._stores.get(store)
        if spec is None or value == "-":
            return spec is None
        start = int(key[-24:-8], 16)
        observed = self._observed[store] = max(self._observed[store], start)
        return start // spec.segment_ms >= (observed - spec.retention_ms) // spec.segment_ms


def test_every_record_leads_to_what_kafka_streams_sends_and_logs() -> None:
    topology = program().build()
    kept = Kept(spec for sub in topology.resolve("app") for spec in sub.stores)
    written = EXPECTED.read_text().splitlines()
    expected = [line for line in written if line.startswith((">", "dropped")) or kept(line)]
    lines: list[str] = []
    dropped = 0
    settings = {"application_id": "app", "default_key_serde": TEXT, "default_value_serde": TEXT}
    with TopologyTestDriver(topology, settings, stream_join_unmatched="at_once") as driver:
        inputs = {name: driver.create_input_topic(name) for name in ("left-input", "right-input")}
        for number, line in enumerate(line for line in expected if line.startswith("> ")):
            topic, key, value, timestamp = (None if word == "-" else word for word in line[2:].split("\t"))
            headers = [("n", str(number).encode())]
            inputs[topic or ""].pipe(key, value, timestamp=int(timestamp or 0), headers=headers)
            lines += [line, *text(driver)]
            if dropped != (dropped := sum(task.dropped_records for task in driver._tasks)):
                lines.append(f"dropped\t{dropped}")
    assert [*ordered(lines)] == [*ordered(expected)]
    assert len(expected) < len(written)
