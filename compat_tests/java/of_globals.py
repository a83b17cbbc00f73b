"""Global tables and stores, and what reads them, as src/OfGlobals.java, src/OfStreamJoins.java and src/OfStores.java
have them."""

from __future__ import annotations

from compat_tests.java.of_joins import SIDES, both, everything
from compat_tests.java.of_processors import told
from compat_tests.java.of_streams import LONG, TEXT, by_value, text
from compat_tests.java.registry import Registry
from milestones.common.records import Record
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.topology import GlobalKTable, KStream, Processor, StreamsBuilder, Topology
from milestones.common.topology.processor import ProcessorContext

ENTRIES = Registry()


def stream_and_global(builder: StreamsBuilder) -> tuple[KStream, GlobalKTable]:
    return builder.stream("left"), builder.global_table("right")


def own_key(key: str | None, _: str) -> str | None:
    return key


def letter(_: str | None, value: str | None) -> str | None:
    return value[:1] or None if value is not None else None


@ENTRIES.dsl("join_stream_global_inner", *SIDES)
def global_inner(builder: StreamsBuilder) -> None:
    left, right = stream_and_global(builder)
    left.join(right, both, on=by_value).to("out")


@ENTRIES.dsl("join_stream_global_left", *SIDES)
def global_left(builder: StreamsBuilder) -> None:
    left, right = stream_and_global(builder)
    left.left_join(right, both, on=by_value).to("out")


@ENTRIES.dsl("join_stream_global_named", *SIDES)
def global_named(builder: StreamsBuilder) -> None:
    left, right = builder.stream("left"), builder.global_table("right", "everywhere", key=TEXT, value=TEXT)
    left.left_join(right, everything, on=own_key, with_key=True).to("out")


@ENTRIES.dsl("global_join_no_keys", *SIDES)
def no_keys(builder: StreamsBuilder) -> None:
    left, right = stream_and_global(builder)
    left.join(right, both, on=letter).to("out")


@ENTRIES.dsl("global_left_join_no_keys", *SIDES)
def left_no_keys(builder: StreamsBuilder) -> None:
    left, right = stream_and_global(builder)
    left.left_join(right, both, on=letter).to("out")


@ENTRIES.dsl("global_join_rekeyed", *SIDES)
def rekeyed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").select_key(by_value)
    joined = left.join(builder.global_table("right"), both, on=own_key)
    joined.group_by_key().count().to_stream().to("out", value=LONG)


@ENTRIES.dsl("global_left_join_before_left_join", *SIDES, "third")
def relaxed(builder: StreamsBuilder) -> None:
    left = builder.stream("left").select_key(letter)
    joined = left.left_join(builder.global_table("right"), both, on=own_key)
    joined.left_join(builder.table("third"), both).to("out")


@ENTRIES.dsl("global_join_options", *SIDES)
def options(builder: StreamsBuilder) -> None:
    left = builder.stream("left")
    right = builder.global_table("right", "everywhere", name="rights", in_memory=True)
    left.left_join(right, both, on=by_value, name="joining").to("out")


@ENTRIES.dsl("global_join_two", *SIDES, "third")
def two(builder: StreamsBuilder) -> None:
    left, right = stream_and_global(builder)
    joined = left.join(right, both, on=by_value)
    joined.left_join(builder.global_table("third"), both, on=own_key).to("out")


@ENTRIES.dsl("global_join_null_results", *SIDES)
def null_results(builder: StreamsBuilder) -> None:
    left, right = stream_and_global(builder)
    left.left_join(right, lambda one, other: None if other is None else one + other, on=by_value).to("out")


class Reading(Processor):
    """What is in the global table, with its time."""

    def process(self, record: Record) -> None:
        rows = self.context.get_state_store("everywhere")
        range_ = rows.reverse_range(None, record.key)
        said = "".join(f"{key}{row.value}{row.timestamp}" for key, row in range_)
        row = None if record.key is None else rows.get(record.key)
        found = " none" if row is None else f" {row.value} at {row.timestamp}"
        self.context.forward(record.with_value(said + found))


@ENTRIES.dsl("global_table_read", *SIDES)
def table_read(builder: StreamsBuilder) -> None:
    builder.global_table("right", "everywhere", key=TEXT, value=TEXT)
    builder.stream("left").process(Reading).to("out")


@ENTRIES.dsl("global_table_written", *SIDES)
def table_written(builder: StreamsBuilder) -> None:
    left = builder.stream("left")
    left.filter(lambda _, value: value is not None and value.startswith("a")).to("right")
    left.left_join(builder.global_table("right"), both, on=own_key).to("out")


class Keeping(Processor):
    def process(self, record: Record) -> None:
        if record.key is not None:
            self.context.get_state_store("everywhere").put(record.key, record.value)


class Everywhere(Processor):
    def process(self, record: Record) -> None:
        if record.key is not None:
            store = self.context.get_state_store("everywhere")
            self.context.forward(record.with_value(f"{text(store.get(record.key))} of {told(store.all())}"))


@ENTRIES.dsl("global_store", "in", "global")
def global_store(builder: StreamsBuilder) -> None:
    spec = StoreSpec("everywhere", key_serde=TEXT, value_serde=TEXT)
    builder.add_global_store(spec, "global", Keeping, key=TEXT, value=TEXT)
    builder.stream("in").process(Everywhere).to("out")


MANY = StoreSpec("many", persistent=False, key_serde=TEXT, value_serde=TEXT)


class Many(Processor):
    """Several writes for each record of the store's topic."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.get_state_store("many")
        self.store.put("begun", "by none" if context.record_metadata() is None else "by a record")

    def process(self, record: Record) -> None:
        if record.key is None:
            self.store.delete("begun")
            return
        at = self.context.record_metadata()
        assert at is not None  # a record is in work
        value = record.value
        self.store.put(record.key, value)
        self.store.put(record.key + "'", "deleted" if value is None else f"{value}{record.timestamp}")
        self.store.put_if_absent("first", f"{record.key}{at.offset}")


class Telling(Processor):
    def process(self, record: Record) -> None:
        store = self.context.get_state_store("many")
        self.context.forward(record.with_value(told(store.all()) + text(store.get("first"))))


@ENTRIES.dsl("global_store_of_many_writes", *SIDES)
def many_writes(builder: StreamsBuilder) -> None:
    builder.stream("left").process(Telling).to("out")
    builder.add_global_store(MANY, "right", Many, key=TEXT, value=TEXT)


class WithTimes(Processor):
    def process(self, record: Record) -> None:
        if record.key is not None:
            row = ValueAndTimestamp(record.value, record.timestamp + 5) if record.value is not None else None
            self.context.get_state_store("times").put(record.key, row)


class TimesRead(Processor):
    def process(self, record: Record) -> None:
        row = None if record.key is None else self.context.get_state_store("times").get(record.key)
        self.context.forward(record.with_value(None if row is None else f"{row.value} at {row.timestamp}"))


@ENTRIES.dsl("global_store_timestamped", *SIDES)
def timestamped(builder: StreamsBuilder) -> None:
    spec = StoreSpec("times", kind="timestamped-key-value", key_serde=TEXT, value_serde=TEXT)
    builder.add_global_store(spec, "right", WithTimes, name="rights")
    builder.stream("left").process(TimesRead).to("out")


@ENTRIES.api("global_store_api", *SIDES)
def global_store_api() -> Topology:
    topology = Topology().add_source("lefts", "left")
    topology.add_global_store(MANY, "rights", "right", "keeping", Many, key=TEXT, value=TEXT)
    return topology.add_processor("telling", Telling, "lefts").add_sink("out", "out", "telling")
