"""The topologies under test. `oracles/flows.py` has the language in which `cases/flows.py` says what they must do.

*Guarantees*: what a topology is, follows from the application id alone.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from compat_tests.apps import memories
from compat_tests.apps.calls import TICKS, Calls, Ticks, call
from compat_tests.apps.slots import Slots, slots_store
from compat_tests.apps.times import times
from compat_tests.oracles.rows import ORDINAL
from compat_tests.random_topologies.plans import Plan
from compat_tests.random_topologies.program import topology
from compat_tests.takeover.parts import NAME as TAKE_OVER
from compat_tests.takeover.parts import Application
from milestones import (
    JoinWindows,
    Processor,
    ProcessorContext,
    Record,
    SessionWindows,
    StoreSpec,
    StreamsBuilder,
    TimeWindows,
    Topology,
    serdes,
)

TEXT, LONG = serdes.STRING, serdes.LONG


class Words(Processor):
    """One record per word of the value, keyed by it and numbered by the header `ordinal`."""

    def process(self, record: Record) -> None:
        for number, word in enumerate(record.value.split()):
            headers = [*record.headers, (ORDINAL, str(number).encode())]
            self.context.forward(Record(word, word, record.timestamp, headers))


WAITING = "waiting"
TICK_MS, PER_TICK = 200, 8


class Later(Processor):
    """Keeps each record in a store; a few of them are forwarded each `TICK_MS`, the oldest first. So most of what is
    committed has outputs and state, and offsets that don't move."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._waiting = context.get_state_store(WAITING)
        context.schedule(TICK_MS, "wall-clock-time", self._tick)

    def process(self, record: Record) -> None:
        metadata = self.context.record_metadata()
        assert metadata is not None  # only a punctuation has none
        self._waiting.put(f"{metadata.offset:09d}", memories.kept(record))

    def _tick(self, _: int) -> None:
        for place, row in list(islice(self._waiting.all(), PER_TICK)):
            self.context.forward(memories.restored(row))
            self._waiting.delete(place)


def copy(app: str) -> StreamsBuilder:
    """in -> out, unchanged."""
    builder = StreamsBuilder()
    builder.stream(f"{app}-in", key=TEXT, value=TEXT).to(f"{app}-out")
    return builder


def count(app: str, source: str | re.Pattern[str] | None = None, *, in_memory: bool = False) -> StreamsBuilder:
    """The count of records per key of `in`."""
    builder = StreamsBuilder()
    records = builder.stream(source or f"{app}-in", key=TEXT, value=TEXT)
    records.group_by_key().count("counts", in_memory=in_memory).to_stream().to(f"{app}-out", value=LONG)
    return builder


def count_by_pattern(app: str) -> StreamsBuilder:
    """The same, of a source that is known by a pattern only."""
    return count(app, re.compile(f"{re.escape(app)}-i[n]"))


def count_all(app: str) -> StreamsBuilder:
    """The count of records per value of every topic whose name begins with the application id, but for `out`: the
    application's own repartition topic and changelog have such names, too."""
    builder = StreamsBuilder()
    records = builder.stream(re.compile(f"{re.escape(app)}-(?!out).*"), key=TEXT, value=TEXT)
    counts = records.group_by(lambda _, value: value, name="by-value", key=TEXT).count("counts")
    counts.to_stream().to(f"{app}-out", value=LONG)
    return builder


def count_in_memory(app: str) -> StreamsBuilder:
    """The same, with a store that a restart has to restore from its changelog."""
    return count(app, in_memory=True)


def count_by_value(app: str) -> StreamsBuilder:
    """The count of records per value of `in`: one repartition."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    counts = records.group_by(lambda _, value: value, name="by-value", key=TEXT).count("counts")
    counts.to_stream().to(f"{app}-out", value=LONG)
    return builder


def words(app: str) -> StreamsBuilder:
    """The count of words: several outputs per input, one repartition."""
    builder = StreamsBuilder()
    split = builder.stream(f"{app}-in", key=TEXT, value=TEXT).process(Words)
    counts = split.group_by_key(name="words", key=TEXT, value=TEXT).count("counts")
    counts.to_stream().to(f"{app}-out", value=LONG)
    return builder


def two(app: str) -> StreamsBuilder:
    """Two sub-topologies that have nothing to do with each other: a copy of `in`, a count of `other`."""
    builder = StreamsBuilder()
    builder.stream(f"{app}-in", key=TEXT, value=TEXT).to(f"{app}-out")
    others = builder.stream(f"{app}-other", key=TEXT, value=TEXT)
    others.group_by_key().count("counts").to_stream().to(f"{app}-counts", value=LONG)
    return builder


def two_counts(app: str) -> StreamsBuilder:
    """Two sub-topologies with state: the counts of `in`, and those of `other`."""
    builder = StreamsBuilder()
    for source, store, output in (("in", "counts", "out"), ("other", "others", "beside")):
        records = builder.stream(f"{app}-{source}", key=TEXT, value=TEXT)
        records.group_by_key().count(store).to_stream().to(f"{app}-{output}", value=LONG)
    return builder


def several(app: str) -> StreamsBuilder:
    """One task reads `in` and `other`, by time, and keeps each key's values as one text."""
    builder = StreamsBuilder()
    both = builder.stream([f"{app}-in", f"{app}-other"], key=TEXT, value=TEXT)
    texts = both.group_by_key().aggregate(str, lambda key, value, text: text[-40:] + value, "texts", value=TEXT)
    texts.to_stream().to(f"{app}-out", value=TEXT)
    return builder


def later(app: str) -> Topology:
    """in -> out, unchanged, but for the most part long after the input's offset was committed."""
    return (
        Topology()
        .add_source("in", f"{app}-in", key=TEXT, value=TEXT)
        .add_processor("later", Later, "in")
        .add_state_store(StoreSpec(WAITING, "timestamped-key-value", key_serde=TEXT, value_serde=TEXT), "later")
        .add_sink("out", f"{app}-out", "later", key=TEXT, value=TEXT)
    )


def refuse(key: str, value: str) -> str:
    """The user code of `fragile`."""
    if value == "poison":
        raise RuntimeError("the user's code doesn't like this value")
    return value


def fragile(app: str) -> StreamsBuilder:
    """A copy of numbers-as-text through user code that raises on `poison`, after a count was changed."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    counts = records.group_by_key().aggregate(int, lambda key, value, n: n + 1, "counts", value=LONG)
    counts.to_stream().to(f"{app}-counts", value=LONG)
    records.map_values(refuse, with_key=True).to(f"{app}-out")
    return builder


def unwritable(app: str) -> StreamsBuilder:
    """A copy that hands its sink's serde a number in place of `poison`."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    records.map_values(lambda value: 42 if value == "poison" else value).to(f"{app}-out", value=TEXT)
    return builder


def elsewhere(app: str) -> StreamsBuilder:
    """in -> out, unchanged; a value that begins with `elsewhere` goes to that topic."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    records.to(lambda key, value, record: f"{app}-{'elsewhere' if value.startswith('elsewhere') else 'out'}")
    return builder


def plain(app: str, *, upserts: bool = False) -> StreamsBuilder:
    """As `count`, and each record to `last`."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    records.group_by_key().count("counts").to_stream().to(f"{app}-out", value=LONG, upserts=upserts)
    records.to(f"{app}-last", upserts=upserts)
    return builder


def upserts(app: str) -> StreamsBuilder:
    """The same by upsert sinks."""
    return plain(app, upserts=True)


def calls(app: str) -> StreamsBuilder:
    """The count of records per key of `in`, each counted twice: before and behind the call that its value asks for."""
    builder = StreamsBuilder()
    twice = builder.stream(f"{app}-in", key=TEXT, value=TEXT).process_values(Calls)
    twice.group_by_key().count("counts").to_stream().to(f"{app}-out", value=LONG)
    return builder


def noting(app: str) -> StreamsBuilder:
    """in -> out, each record behind the call that its value asks for; and the count of records per key to `counts`."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    records.peek(lambda _, value: call(value)).to(f"{app}-out")
    records.group_by_key().count("counts").to_stream().to(f"{app}-counts", value=LONG)
    return builder


def ticks(app: str) -> Topology:
    """in -> out, each behind the call that its value asks for; and what each task does by the clock, to `ticks`."""
    return (
        Topology()
        .add_source("in", f"{app}-in", key=TEXT, value=TEXT)
        .add_processor("calls", Ticks, "in")
        .add_sink("out", f"{app}-out", "calls", key=TEXT, value=TEXT)
        .add_sink(TICKS, f"{app}-ticks", "calls", key=TEXT, value=TEXT)
    )


def remembering(app: str) -> Topology:
    """The count of records per key of `in`, and each record to `ticks`, by a processor that remembers."""
    topology = Topology().add_source("in", f"{app}-in", key=TEXT, value=TEXT)
    topology.add_processor("remembering", memories.Remembering, "in")
    for store in (memories.COUNTS, memories.BEGUN, memories.MOMENTS):
        spec = StoreSpec(store, "timestamped-key-value", key_serde=TEXT, value_serde=LONG)
        topology.add_state_store(spec, "remembering")
    waiting = StoreSpec(memories.WAITING, "timestamped-key-value", key_serde=TEXT, value_serde=TEXT)
    topology.add_state_store(waiting, "remembering")
    topology.add_sink(memories.OUT, f"{app}-out", "remembering", key=TEXT, value=LONG)
    return topology.add_sink(memories.TICKS, f"{app}-ticks", "remembering", key=TEXT, value=TEXT)


def slots(app: str) -> StreamsBuilder:
    """Each key's values in a few slots of a store; scans of it go to `out`."""
    builder = StreamsBuilder().add_state_store(slots_store("slots"))
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    records.process(lambda: Slots("slots"), "slots").to(f"{app}-out", key=TEXT, value=TEXT)
    return builder


def windows(app: str) -> StreamsBuilder:
    """The counts of `in` per key and window of 50 ms, each emitted once the window has closed. User code raises on
    `poison`, after its window was counted, and others were closed by it."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    counts = records.group_by_key().windowed_by(TimeWindows(50, grace=10), emit="on_close").count("counts")
    named = counts.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}")
    named.map_values(str).to(f"{app}-out", key=TEXT, value=TEXT)
    records.for_each(refuse)
    return builder


def lookups(app: str) -> StreamsBuilder:
    """Each record of `asks` with the value that its key has in the table `in`."""
    builder = StreamsBuilder()
    table = builder.table(f"{app}-in", "rows", key=TEXT, value=TEXT)
    asks = builder.stream(f"{app}-asks", key=TEXT, value=TEXT)
    asks.left_join(table, lambda ask, row: f"{ask} {row}").to(f"{app}-out", key=TEXT, value=TEXT)
    return builder


def pairs(app: str) -> StreamsBuilder:
    """Each record of `in` with each of `other` of its key and time."""
    builder = StreamsBuilder()
    left, right = (builder.stream(f"{app}-{name}", key=TEXT, value=TEXT) for name in ("in", "other"))
    left.join(right, lambda value, other: f"{value}+{other}", within=JoinWindows(0, grace=0)).to(f"{app}-out")
    return builder


PAID_WITHIN_MS, USUAL_GRACE_MS, LONG_GRACE_MS = 120_000, 1_800_000, 86_400_000
"""Of `paid`: how much later a payment may be; the grace, and one that is longer than a backlog."""


def paid(app: str, grace_ms: int = USUAL_GRACE_MS) -> StreamsBuilder:
    """The orders of `in`, rekeyed by their values, each with its payment of `other`, or with None."""
    builder = StreamsBuilder()
    orders, payments = (builder.stream(f"{app}-{name}", key=TEXT, value=TEXT) for name in ("in", "other"))
    orders.select_key(lambda _, order: order).left_join(
        payments, lambda order, payment: f"{order}+{payment}", within=JoinWindows(0, PAID_WITHIN_MS, grace=grace_ms),
        name="by-order", key=TEXT, value=TEXT, other_value=TEXT,
    ).to(f"{app}-out", key=TEXT, value=TEXT)  # fmt: skip
    return builder


def paid_late(app: str) -> StreamsBuilder:
    """The same, with a grace that is longer than a backlog."""
    return paid(app, LONG_GRACE_MS)


LONG_AGO_MS = 300_000
"""The size of the windows, the gap of the sessions, the time between joined records in `long_ago`."""


def long_ago(app: str) -> StreamsBuilder:
    """What windows, sessions and joins of streams say of `in` and `other`: to `out`, each in a few words."""
    builder = StreamsBuilder()
    left, right = (builder.stream(f"{app}-{name}", key=TEXT, value=TEXT) for name in ("in", "other"))
    windows, within = TimeWindows(LONG_AGO_MS, grace=0), JoinWindows(LONG_AGO_MS, grace=0)
    grouped = left.group_by_key()
    counts = {
        "window": grouped.windowed_by(windows).count("per-window"),
        "closed": grouped.windowed_by(windows, emit="on_close").count("per-closed-window"),
        "session": grouped.windowed_by(SessionWindows(LONG_AGO_MS, grace=0)).count("per-session"),
    }
    for name, table in counts.items():
        told = table.to_stream(lambda windowed, _: windowed.key).filter(lambda _, count: count is not None)
        told.map_values(f"{name} {{}}".format).to(f"{app}-out", key=TEXT, value=TEXT)
    for joined in (
        left.join(right, "inner {}+{}".format, within=within),
        left.left_join(right, "left {}+{}".format, within=within),
        left.outer_join(right, "outer {}+{}".format, within=within),
    ):
        joined.to(f"{app}-out", key=TEXT, value=TEXT)
    return builder


def as_long(_key: str, value: str) -> str | None:
    """The foreign key of `foreign_keys`: the length of the value."""
    return None if value.startswith("over") else f"k{len(value)}"


def foreign_keys(app: str) -> StreamsBuilder:
    """Rows of `in` with those of `other` that they refer to: all to `out`, those that are found to `matched`."""
    builder = StreamsBuilder()
    left, right = (builder.table(f"{app}-{name}", key=TEXT, value=TEXT) for name in ("in", "other"))
    rows = left.left_join(right, lambda value, other: f"{value}+{other or 'none'}", "joined", foreign_key=as_long,
                          name="of", value=TEXT)  # fmt: skip
    rows.to_stream().to(f"{app}-out", value=TEXT)
    matched = left.join(right, lambda value, other: f"{value}+{other}", foreign_key=as_long, name="found")
    matched.to_stream().to(f"{app}-matched", value=TEXT)
    return builder


def suppressed(app: str) -> StreamsBuilder:
    """As `windows`, by suppress."""
    builder = StreamsBuilder()
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    counts = records.group_by_key().windowed_by(TimeWindows(50, grace=10)).count("counts")
    named = counts.suppress(until="window_closes").to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}")
    named.map_values(str).to(f"{app}-out", key=TEXT, value=TEXT)
    records.for_each(refuse)
    return builder


def everywhere(app: str) -> StreamsBuilder:
    """Each record of `in` with the row of the global table `rows` that its value names."""
    builder = StreamsBuilder()
    rows = builder.global_table(f"{app}-rows", "rows", key=TEXT, value=TEXT)
    records = builder.stream(f"{app}-in", key=TEXT, value=TEXT)
    joined = records.left_join(rows, lambda name, row: f"{name}={row}", on=lambda _, name: name)
    joined.to(f"{app}-out", key=TEXT, value=TEXT)
    return builder


TOPOLOGIES: dict[str, Callable[[str], StreamsBuilder | Topology]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        copy, count, count_by_pattern, count_all, count_in_memory, count_by_value, words, two, two_counts, several,
        later, fragile, unwritable, calls, noting, elsewhere, ticks, remembering, slots, windows, suppressed,
        everywhere, foreign_keys, lookups, pairs, paid, paid_late, long_ago, plain, times, upserts,
    )
}  # fmt: skip

PLAN = "plan:"
"""What the name of a random topology begins with; a plan in text, or a file of it, follows."""


def named(name: str) -> Callable[[str], StreamsBuilder | Topology]:
    """The topology of that name, by application id; `ValueError` says what there is."""
    if name.startswith(PLAN):
        plan = Plan.parse(name.removeprefix(PLAN))
        return lambda app: topology(plan, f"{app}-")
    if name.startswith(TAKE_OVER):
        return Application.parse(name).topology
    if name not in TOPOLOGIES:
        known = ", ".join(sorted(TOPOLOGIES))
        raise ValueError(f"no topology {name!r}; there are {known}, {PLAN}JSON, {PLAN}FILE, {TAKE_OVER}JSON")
    return TOPOLOGIES[name]
