"""A plan as a program of ours.

*Guarantees*: the topology follows from the plan and the prefix alone. Where a step makes several outputs of a record,
the header `ordinal` numbers them, as the oracles want it.
*Assumes*: `interpretation.py` says the same, in plain Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import reduce
from zlib import crc32

from compat_tests.apps.slots import OfAStore, Slots, slots_store
from compat_tests.oracles.rows import ORDINAL
from compat_tests.random_topologies.plans import CALLED, FAN_OUT, Path, Plan
from compat_tests.random_topologies.shaped_program import joined, windowed
from milestones import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    KTable,
    Record,
    StreamsBuilder,
    ValueAndTimestamp,
    serdes,
)

TEXT, LONG = serdes.STRING, serdes.LONG


class Letters(FixedKeyProcessor):
    """One record per letter of the value."""

    def process(self, record: FixedKeyRecord) -> None:
        named = [value for name, value in record.headers if name == ORDINAL and value is not None]
        before = int(named[-1]) if named else 0
        for at, letter in enumerate(record.value or ""):
            headers = [*record.headers, (ORDINAL, b"%d" % (before * FAN_OUT + at))]
            self.context.forward(record._replace(value=letter, headers=headers))


class Marks(OfAStore):
    """Passes each update of a table on, and writes back into its store: rows have a mark there then. A row doesn't
    depend on what it was before."""

    def process(self, record: Record) -> None:
        self._store.put(record.key, ValueAndTimestamp(f"{record.value}'", record.timestamp))
        self.context.forward(record)


def calling(longest_ms: int) -> Callable[[str | None, str | None], str | None]:
    """A mapper that leaves values as they are and waits now and then; for how long, key and value decide."""

    def call(key: str | None, value: str | None) -> str | None:
        number = crc32(f"{key} {value}".encode())
        if number % CALLED == 0:
            time.sleep(number // CALLED % longest_ms / 1000)
        return value

    return call


STEPS: Mapping[str, Callable[[KStream], KStream]] = {
    "drop-keyless": lambda stream: stream.filter_not(lambda key, _: key is None),
    "erase-empty": lambda stream: stream.map_values(lambda value: value or None),
    "keep-short": lambda stream: stream.filter(lambda _, value: len(value or "") < 3),
    "letters": lambda stream: stream.process_values(Letters),
    "tag": lambda stream: stream.map_values(lambda value: f"{value or ''}!"),
    "by-value": lambda stream: stream.select_key(lambda _, value: value),
    "swap": lambda stream: stream.map(lambda key, value: (value, key)),
}


def topology(plan: Plan, prefix: str = "") -> StreamsBuilder:
    """The program. Topics' names begin with `prefix`."""
    builder = StreamsBuilder()
    sources = {at: builder.stream(f"{prefix}in{at}", key=TEXT, value=TEXT) for at in plan.used}
    for number, path in enumerate(plan.paths):
        stream: KStream = reduce(KStream.merge, [sources[source] for source in path.sources])
        if plan.calls:
            stream = stream.map_values(calling(plan.calls), with_key=True)
        stream = reduce(lambda stream, step: STEPS[step](stream), path.steps, stream)
        if path.again:
            stream = stream.repartition(name=f"again{number}", key=TEXT, value=TEXT, partitions=path.again)
        stream = reduce(lambda stream, step: STEPS[step](stream), path.more, stream)
        if path.windows is not None:
            windowed(stream, path, path.windows, number, f"{prefix}out{number}")
        elif path.join is not None:
            joined(stream, sources[path.join.other], path, path.join, number, f"{prefix}out{number}")
        else:
            _finish(builder, stream, path, number, f"{prefix}out{number}")
    return builder


def _finish(builder: StreamsBuilder, stream: KStream, path: Path, number: int, output: str) -> None:
    store, in_memory = f"store{number}", path.in_memory
    if path.end == "copy":
        stream.to(output, key=TEXT, value=TEXT)
        return
    if path.end == "table":
        made = stream.to_table(store, name=f"group{number}", key=TEXT, value=TEXT, in_memory=in_memory)
        made.to_stream().to(output, key=TEXT, value=TEXT)
        return
    if path.end == "slots":
        builder.add_state_store(slots_store(store, in_memory=in_memory))
        if path.rekeyed:
            stream = stream.repartition(name=f"group{number}", key=TEXT, value=TEXT)
        stream.process(lambda: Slots(store), store).to(output, key=TEXT, value=TEXT)
        return
    grouped = stream.group_by_key(name=f"group{number}", key=TEXT, value=TEXT)
    if path.end == "marked":
        latest = grouped.reduce(lambda _, value: value, store, in_memory=in_memory)
        latest.to_stream().process(lambda: Marks(store), store).to(output, key=TEXT, value=TEXT)
        return
    made_of: Mapping[str, Callable[[], KTable]] = {
        "count": lambda: grouped.count(store, in_memory=in_memory),
        "latest": lambda: grouped.reduce(lambda _, value: value, store, in_memory=in_memory),
        "join-texts": lambda: grouped.aggregate(
            str, lambda _, value, text: text[-9:] + value, store, value=TEXT, in_memory=in_memory
        ),
    }
    made_of[path.end]().to_stream().to(output, key=TEXT, value=LONG if path.end == "count" else TEXT)
