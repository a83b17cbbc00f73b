"""Processors, as src/OfProcessors.java has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compat_tests.java.cases import WALL_MS
from compat_tests.java.of_streams import LONG, TEXT, append, text
from compat_tests.java.registry import Registry
from milestones.common.records import FixedKeyRecord, Record
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.topology import FixedKeyProcessor, KStream, Processor, StreamsBuilder, Topology
from milestones.common.topology.processor import FixedKeyProcessorContext, ProcessorContext
from milestones.common.topology.program import Cancellable, PunctuationType

ENTRIES = Registry()


def store(name: str = "seen", **options: Any) -> StoreSpec:
    return StoreSpec(name, key_serde=TEXT, value_serde=TEXT, **options)


def stored(builder: StreamsBuilder, spec: StoreSpec) -> KStream:
    return builder.add_state_store(spec).stream("in")


class Remembering(Processor):
    """What was seen of a key so far, then the record; None deletes."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        if record.key is not None:
            old = self.store.get(record.key)
            self.context.forward(record.with_value("seen " + text(old)))
            keep = record.value is None or old is None
            self.store.put(record.key, record.value if keep else append(old, record.value))
        self.context.forward(record)


@ENTRIES.dsl("process")
def process(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(Remembering, "seen").to("out")


class SeenValues(FixedKeyProcessor):
    def init(self, context: FixedKeyProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")

    def process(self, record: FixedKeyRecord) -> None:
        if record.key is not None:
            old = self.store.get(record.key)
            self.context.forward(record.with_value(old).with_timestamp(record.timestamp + 1))
            self.store.put(record.key, record.value)


@ENTRIES.dsl("process_values")
def process_values(builder: StreamsBuilder) -> None:
    values = stored(builder, store()).process_values(SeenValues, "seen", name="values")
    values.group_by_key().count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("process_cached_store")
def process_cached_store(builder: StreamsBuilder) -> None:
    stored(builder, store(cached=True)).process(Remembering, "seen").to("out")


@ENTRIES.dsl("process_unlogged_store")
def process_unlogged_store(builder: StreamsBuilder) -> None:
    stored(builder, store(persistent=False, logged=False)).process(Remembering, "seen").to("out")


class RowsWithTime(Processor):
    def process(self, record: Record) -> None:
        rows = self.context.get_state_store("rows")
        if record.key is None:
            return
        row = rows.get(record.key)
        self.context.forward(record.with_value("none" if row is None else f"{row.value} at {row.timestamp}"))
        rows.put(record.key, ValueAndTimestamp(record.value, record.timestamp + 3))
        said = "".join(f"{key}{row.timestamp} " for key, row in rows.reverse_range("a", None))
        self.context.forward(record.with_value(said))


@ENTRIES.dsl("process_timestamped_store")
def process_timestamped_store(builder: StreamsBuilder) -> None:
    stored(builder, store("rows", kind="timestamped-key-value")).process(RowsWithTime, "rows").to("out")


class Calling(Processor):
    """All that a store can be asked to write; a record's value chooses."""

    def process(self, record: Record) -> None:
        seen = self.context.get_state_store("seen")
        key, value = record.key, record.value
        if key is None:
            return
        if not value:
            said = "deleted " + text(seen.delete(key))
        elif value.startswith("a"):
            said = "present " + text(seen.put_if_absent(key, value))
        else:
            seen.put_all([(key, value), (key + "'", value)])
            said = "put " + text(seen.get(key + "'"))
        self.context.forward(record.with_value(said))


@ENTRIES.dsl("store_calls")
def store_calls(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(Calling, "seen").to("out")


def told(entries: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{key}={value} " for key, value in entries)


class Scanning(Processor):
    """Puts each record, then tells the store's entries in several orders."""

    def process(self, record: Record) -> None:
        seen, key = self.context.get_state_store("seen"), record.key
        if key is None:
            return
        seen.put(key, record.value)
        for said, entries in (
            ("all", seen.all()),
            ("reverse", seen.reverse_all()),
            ("range", seen.range("a", "b")),
            ("to", seen.range(None, key)),
            ("from", seen.reverse_range(key, None)),
            ("prefix", seen.prefix_scan("a")),
        ):
            self.context.forward(record.with_value(f"{said} {told(entries)}"))


@ENTRIES.dsl("store_scans")
def store_scans(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(Scanning, "seen").to("out")


class Changing(Processor):
    def process(self, record: Record) -> None:
        marked = record.with_headers([("x", b"\x01")])
        self.context.forward(marked.with_key("marked"))
        self.context.forward(record.with_timestamp(record.timestamp + 5).with_key("later"))
        self.context.forward(record.with_headers([]).with_key("bare"))
        self.context.forward(record.with_headers([*marked.headers, ("y", None)]).with_value(None))
        self.context.forward(record)


class Halving(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record.with_timestamp((record.timestamp + 1) // 2))


@ENTRIES.dsl("records_changed")
def records_changed(builder: StreamsBuilder) -> None:
    builder.stream("in").process(Changing).to("out")
    builder.stream("in").process(Halving).group_by_key().reduce(append).to_stream().to("reduced")


class Ticking(Processor):
    kind: PunctuationType

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")
        context.schedule(10, self.kind, self.tick)

    def tick(self, now: int) -> None:
        said = f"{told(self.store.all())}of {self.context.current_stream_time_ms()}"
        self.context.forward(Record("tick", said, now))
        self.store.put("tick", str(now))

    def process(self, record: Record) -> None:
        if record.key is not None:
            self.store.put(record.key, record.value)
        at = self.context.record_metadata()
        said = "none" if at is None else f"{at.topic}/{at.offset}"
        self.context.forward(record.with_value(f"{self.context.current_stream_time_ms()} of {said}"))


class TickingByStream(Ticking):
    kind = "stream-time"


class TickingByWall(Ticking):
    kind = "wall-clock-time"


@ENTRIES.dsl("stream_time_punctuation")
def stream_time_punctuation(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(TickingByStream, "seen").to("out")


@ENTRIES.dsl("wall_clock_punctuation")
def wall_clock_punctuation(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(TickingByWall, "seen").to("out")


class Beginning(Processor):
    """A value "a" begins to call each 5 ms of stream time, "b" each 7 ms by the wall clock; again or "del" ends it."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.schedules: dict[PunctuationType, Cancellable] = {}

    def process(self, record: Record) -> None:
        if record.value == "a":
            self.begin(5, "stream-time")
        elif record.value == "b":
            self.begin(7, "wall-clock-time")
        elif record.value == "del":
            for schedule in self.schedules.values():
                schedule.cancel()
            self.schedules.clear()
        self.context.commit()

    def begin(self, interval: int, kind: PunctuationType) -> None:
        if kind in self.schedules:
            self.schedules.pop(kind).cancel()
            return

        def tick(now: int) -> None:
            known = self.context.record_metadata() is not None
            said = "of a record" if known else "none"
            self.context.forward(Record(kind.upper().replace("-", "_"), said, now))

        self.schedules[kind] = self.context.schedule(interval, kind, tick)


@ENTRIES.dsl("cancelled_punctuation")
def cancelled_punctuation(builder: StreamsBuilder) -> None:
    builder.stream("in").process(Beginning).to("out")


class Choosing(Processor):
    def process(self, record: Record) -> None:
        if record.value is None:
            self.context.forward(record, "nulls")
        elif record.value.startswith("a"):
            self.context.forward(record, "remembering")
        else:
            self.context.forward(record)


@ENTRIES.api("processor_api", "left", "right")
def processor_api() -> Topology:
    topology = Topology()
    topology.add_source("lefts", "left")
    topology.add_source("rights", "right")
    topology.add_processor("both", Choosing, "lefts", "rights")
    topology.add_processor("remembering", Remembering, "both")
    topology.add_processor("too", Remembering, "rights")
    topology.add_state_store(store(), "remembering", "too")
    topology.add_sink("nulls", "nulls", "both")
    topology.add_sink("out", "out", "remembering", "too")
    topology.add_sink("all", "all", "both", partitioner=lambda topic, key, value, partitions: 0)
    return topology


class LookingUp(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord) -> None:
        row = None if record.key is None else self.context.get_state_store("rows").get(record.key)
        self.context.forward(record.with_value(None if row is None else f"{row.value} at {row.timestamp}"))


@ENTRIES.dsl("rows_read_by_a_processor", "in", "rows")
def rows_read_by_a_processor(builder: StreamsBuilder) -> None:
    builder.table("rows", "rows", key=TEXT, value=TEXT)
    builder.stream("in").process_values(LookingUp, "rows").to("out")


class Brings(Remembering):
    """A class that is a supplier, and brings the store."""

    @staticmethod
    def stores() -> list[StoreSpec]:
        return [store()]


@ENTRIES.dsl("process_that_brings_its_store")
def process_that_brings_its_store(builder: StreamsBuilder) -> None:
    builder.stream("in").process(Brings).to("out")


class FormerRow(FixedKeyProcessor):
    """The row that the key had so far, in a store that the class brings."""

    stores = (StoreSpec("rows", "timestamped-key-value", key_serde=TEXT, value_serde=TEXT),)

    def process(self, record: FixedKeyRecord) -> None:
        if record.key is None:
            return
        rows = self.context.get_state_store("rows")
        former = rows.get(record.key)
        rows.put(record.key, None if record.value is None else ValueAndTimestamp(record.value, record.timestamp))
        self.context.forward(record.with_value("none" if former is None else f"{former.value} at {former.timestamp}"))


@ENTRIES.dsl("process_values_that_brings_its_store")
def process_values_that_brings_its_store(builder: StreamsBuilder) -> None:
    builder.stream("in").process_values(FormerRow, name="former").to("out")


@ENTRIES.api("processor_api_that_brings_its_store")
def processor_api_that_brings_its_store() -> Topology:
    topology = Topology().add_source("source", "in").add_processor("remembering", Brings, "source")
    return topology.add_sink("out", "out", "remembering")


class Anchored(Ticking):
    """Ticks at whole intervals after a time that is past, or to come."""

    start: int

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.get_state_store("seen")
        context.schedule(10, self.kind, self.tick, start=self.start)


class AnchoredByStream(Anchored):
    kind, start = "stream-time", 7


class AnchoredByWall(Anchored):
    kind, start = "wall-clock-time", WALL_MS - 13


class AnchoredLater(Anchored):
    kind, start = "wall-clock-time", WALL_MS + 8


@ENTRIES.dsl("anchored_stream_time_punctuation")
def anchored_stream_time_punctuation(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(AnchoredByStream, "seen").to("out")


@ENTRIES.dsl("anchored_wall_clock_punctuation")
def anchored_wall_clock_punctuation(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(AnchoredByWall, "seen").to("out")


@ENTRIES.dsl("anchored_punctuation_to_come")
def anchored_punctuation_to_come(builder: StreamsBuilder) -> None:
    stored(builder, store()).process(AnchoredLater, "seen").to("out")
