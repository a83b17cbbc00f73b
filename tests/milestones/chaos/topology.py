"""The topology of a campaign: the count, and beside it one of each sort of work that commits have to do with.

    in -> counting -> out; latest (upserts)
       |     +-> keeping: stores that collapse, with deletions, and histories
       +-> ticking: a punctuation by the wall clock, its number, and nothing else -> ticks
       +-> windows, sessions, and a second sub-topology (`windows.py`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common import serdes
from milestones.common.records import Record
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import Processor, Topology
from milestones.common.topology.builder import StreamsBuilder
from milestones.common.topology.windows import SessionWindows, TimeWindows
from tests.milestones.chaos.windows import GAP_MS, GRACE_MS, PARTITIONS, WINDOW_MS, partition_of, total_of
from tests.milestones.fakes import counting
from tests.milestones.stepped_workers import UserCode

TICK_MS = 150
KEPT = ("last", "versions", "lru", "stamped")


class Keeping(Processor):
    """Writes what has a changelog of another sort than the count's."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.stores = {name: context.get_state_store(name) for name in KEPT}

    def process(self, record: Record) -> None:
        number, key = record.value, record.key
        if number % 3:
            self.stores["last"].put(key, number)
            self.stores["stamped"].put_raw(key, number, 1_000 + number)
        else:
            self.stores["last"].delete(key)
            self.stores["stamped"].delete_raw(key, 1_000 + number)
        self.stores["versions"].put(key, number, 1_000 + number * 37 % 200)
        self.stores["lru"].put(f"{key}-{number % 5}", number)


def ticking(goes: Callable[[], bool]) -> type[Processor]:
    class Ticking(Processor):
        """Counts its punctuations. `goes`: whether there are any."""

        def init(self, context: Any) -> None:
            super().init(context)
            self.store = context.get_state_store("ticks")
            context.schedule(TICK_MS, "wall-clock-time", self._tick)

        def process(self, record: Record) -> None:
            pass

        def _tick(self, now_ms: int) -> None:
            if goes():
                key = f"t{self.context.task_id.partition}"
                number = (self.store.get(key) or 0) + 1
                self.store.put(key, number)
                self.context.forward(Record(key, number, now_ms))

    return Ticking


def windowed(total: Callable[[str], object]) -> Topology:
    """The source, and all that `windows.py` has a model of. `total`: called for each record of the second
    sub-topology."""
    builder, text, number = StreamsBuilder(), serdes.STRING, serdes.LONG
    stream = builder.stream("in", key=text, value=text, name="source")
    grouped, windows = stream.group_by_key(), TimeWindows(WINDOW_MS, grace=GRACE_MS)
    counts = grouped.windowed_by(windows).count("windowed")
    counts.suppress(until="window_closes", name="held").to_stream().to("closed")
    grouped.windowed_by(windows, emit="on_close").count("finals").to_stream().to("final")
    grouped.windowed_by(SessionWindows(GAP_MS, grace=GRACE_MS)).count("sessions").to_stream().to("sessions")
    again = stream.select_key(lambda _, value: total_of(value)).repartition(
        name="again", key=text, value=text, partitions=PARTITIONS, partitioner=partition_of
    )
    seen = again.peek(lambda _, value: total(value))
    seen.group_by_key().count("totals").to_stream().to("totals", key=text, value=number)
    return builder.build()


def of_everything(
    user_code: UserCode, *, cached: bool, ticks: Callable[[], bool] | None, total: Callable[[str], object] | None
) -> Topology:
    """`ticks`: whether there are punctuations now; None: there never are. `total`: as of `windowed`; None: there is
    nothing of that."""
    into = None if total is None else windowed(total)
    topology = counting(processor=user_code.processor(), cached=cached, into=into)
    text, number = serdes.STRING, serdes.LONG
    topology.add_sink("latest", "latest", "counting", key=text, value=number, upserts=True)
    topology.add_processor("keeping", Keeping, "counting")
    kinds: dict[str, dict[str, Any]] = {
        "last": {}, "versions": {"kind": "versioned", "retention_ms": 1_000}, "lru": {"kind": "lru", "max_entries": 4},
        "stamped": {"kind": "timestamped-key-value"},
    }  # fmt: skip
    for name, kind in kinds.items():
        topology.add_state_store(StoreSpec(name, key_serde=text, value_serde=number, **kind), "keeping")
    if ticks is not None:
        topology.add_processor("ticking", ticking(ticks), "source")
        topology.add_state_store(StoreSpec("ticks", key_serde=text, value_serde=number), "ticking")
        topology.add_sink("ticks", "ticks", "ticking", key=text, value=number)
    return topology
