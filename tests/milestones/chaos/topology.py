"""The topology of a campaign: the count, and beside it one of each sort of work that commits have to do with.

    in -> counting -> out; latest (upserts)
       |     +-> keeping: stores that collapse, with deletions, and histories
       +-> ticking: a punctuation by the wall clock, its number, and nothing else -> ticks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common import serdes
from milestones.common.records import Record
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import Processor, Topology
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


def of_everything(user_code: UserCode, *, cached: bool, ticks: Callable[[], bool] | None) -> Topology:
    """`ticks`: whether there are punctuations now; None: there never are."""
    topology = counting(processor=user_code.processor(), cached=cached)
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
