"""A plan (`plans.py`) as a topology of ours; src/Plans.java makes the same of it, operation by operation.

*Guarantees*: none of its functions fails, whatever the records are.
*Assumes*: the plan is one of `random_plan`, or a part of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from compat_tests.java.cases import TEXT as RECORDS
from compat_tests.java.of_joins import both
from compat_tests.java.of_streams import LONG, TEXT, aggregate, append, initial, text, words
from compat_tests.java.of_tables import by_letter, subtract
from compat_tests.java.of_windows import concatenated, merge
from compat_tests.java.of_windows import text as text_of_window
from compat_tests.java.plans import topics_of
from compat_tests.java.registry import Entry
from milestones.common.records import FixedKeyRecord, Record
from milestones.common.state.spec import StoreSpec
from milestones.common.topology import (
    FixedKeyProcessor,
    JoinWindows,
    KGroupedTable,
    Processor,
    StreamsBuilder,
    Topology,
)
from milestones.common.topology.timestamps import SourceRecord
from milestones.common.topology.windows import SessionWindows, SlidingWindows, TimeWindows

Made = list[Any]


def entry_of(plan: str) -> Entry:
    """The topology for the bench: its name is the plan."""
    data = json.loads(plan)
    return Entry(plan, lambda: topology_of(data), dict.fromkeys(topics_of(data), RECORDS))


def caches_of(entry: Entry) -> tuple[int, ...]:
    """The caches to run a plan with: behind one Java has windows whose retention is over."""
    bounded = any(op["op"] == "windowed" for op in json.loads(entry.name)["ops"])
    return (0,) if bounded else (0, 10 << 20)


def topology_of(plan: Mapping[str, Any]) -> Topology:
    builder, made = StreamsBuilder(), Made()
    for op in plan["ops"]:
        made.append(_OPERATIONS[op["op"]](builder, op, made))
    return builder.build()


# ---- functions


def letter(value: str | None) -> str | None:
    return value[:1] or None if value else None


_MAPPERS: Mapping[str, Callable[[str | None], str | None]] = {
    "loud": lambda v: None if v is None else v + "!",
    "known": lambda v: "none" if v is None else v,
    "unless_empty": lambda v: v or None,
    "first": letter,
}
_PREDICATES: Mapping[str, Callable[[str | None, str | None], bool]] = {
    "has_value": lambda k, v: v is not None,
    "not_b": lambda k, v: v is None or not v.startswith("b"),
    "key_a": lambda k, v: k is not None and k.startswith("a"),
}
_KEYS: Mapping[str, Callable[[str | None, str | None], str | None]] = {
    "value": lambda k, v: v,
    "letter": lambda k, v: letter(v),
    "both": lambda k, v: text(k) + text(v),
}
_PAIRS: Mapping[str, Callable[[str | None, str | None], tuple[str | None, str | None]]] = {
    "swapped": lambda k, v: (v, k),
    "by_letter": lambda k, v: (letter(v), text(k) + text(v)),
}
_EXTRACTORS: Mapping[str, Callable[[SourceRecord, int], int]] = {
    "earlier": lambda record, partition_time: max(1, record.timestamp - 7),
    "partition_time": lambda record, partition_time: max(record.timestamp, partition_time),
}
_WINDOWS: Mapping[str, Callable[[int, int], Any]] = {
    "tumbling": lambda size, grace: TimeWindows(size, grace=grace),
    "hopping": lambda size, grace: TimeWindows(size, grace=grace, advance=4),
    "sliding": lambda size, grace: SlidingWindows(size, grace=grace),
    "session": lambda size, grace: SessionWindows(size, grace=grace),
}
_KEEP: Mapping[str | None, Mapping[str, bool]] = {
    None: {},
    "uncached": {"caching": False},
    "unlogged": {"logging": False},
    "in_memory": {"in_memory": True},
}


def _kept(op: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a table."""
    if "store" not in op:
        return {}
    value = LONG if op["op"] == "count" else TEXT
    return {"store": op["store"], "key": TEXT, "value": value, **_KEEP[op.get("keep")]}


def _windows_kept(op: Mapping[str, Any]) -> dict[str, Any]:
    if "retention" not in op:
        return _kept(op)
    value = LONG if op["op"] == "count" else TEXT
    return {"key": TEXT, "value": value, **_kept(op), "retention": op["retention"]}


class Seen(Processor):
    """What was seen of a key so far, then the record; None deletes."""

    def __init__(self, store: str) -> None:
        self._store = store

    def process(self, record: Record) -> None:
        if record.key is not None:
            rows = self.context.get_state_store(self._store)
            old = rows.get(record.key)
            self.context.forward(record.with_value("seen " + text(old)))
            rows.put(record.key, record.value if record.value is None or old is None else append(old, record.value))
        self.context.forward(record)


class SeenValues(FixedKeyProcessor):
    def __init__(self, store: str) -> None:
        self._store = store

    def process(self, record: FixedKeyRecord) -> None:
        if record.key is not None:
            rows = self.context.get_state_store(self._store)
            self.context.forward(record.with_value(rows.get(record.key)).with_timestamp(record.timestamp + 1))
            rows.put(record.key, record.value)


# ---- operations


def _stream(builder: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
    extractor = _EXTRACTORS[op["extractor"]] if "extractor" in op else None
    return builder.stream(op["topic"], timestamp_extractor=extractor)


def _split(_: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
    split = made[op["of"]].split(name=op["name"])
    for number, predicate in enumerate(op["predicates"]):
        split = split.branch(_PREDICATES[predicate], name=f"-{number}")
    branches = split.default_branch(name="-rest")
    return [branches[op["name"] + f"-{number}"] for number in range(len(op["predicates"]))] + [
        branches[op["name"] + "-rest"]
    ]


def _process(builder: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
    store = op["store"]
    builder.add_state_store(StoreSpec(store, key_serde=TEXT, value_serde=TEXT))
    if op["op"] == "process":
        return made[op["of"]].process(lambda: Seen(store), store)
    return made[op["of"]].process_values(lambda: SeenValues(store), store)


def _windowed(_: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
    windows = _WINDOWS[op["shape"]](op["size"], op["grace"])
    return made[op["of"]].windowed_by(windows, emit=op.get("emit", "on_update")), windows


def _aggregated(_: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
    given = made[op["of"]]
    windows = None
    if isinstance(given, tuple):
        given, windows = given
    kept = _windows_kept(op)
    if op["op"] == "count":
        return given.count(**kept)
    if isinstance(given, KGroupedTable):
        if op["op"] == "reduce":
            return given.reduce(append, subtract, **kept)
        return given.aggregate(initial, aggregate, lambda k, v, so_far: subtract(so_far, v), **kept)
    if op["op"] == "reduce":
        return given.reduce(concatenated, **kept)
    if isinstance(windows, SessionWindows):
        return given.aggregate(initial, aggregate, merge, **kept)
    return given.aggregate(initial, aggregate, **kept)


def _join_streams(_: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
    within = JoinWindows(op["before"], op["after"], grace=op["grace"])
    named = {"store": op["store"]} if "store" in op else {}
    return _JOINS[op["how"]](made[op["of"]])(
        made[op["with"]], both, within=within, key=TEXT, value=TEXT, other_value=TEXT, **named
    )


_JOINS: Mapping[str, Callable[[Any], Any]] = {
    "inner": lambda side: side.join,
    "left": lambda side: side.left_join,
    "outer": lambda side: side.outer_join,
}


def _joined(**given: Callable[[Mapping[str, Any]], Any]) -> Callable[[StreamsBuilder, Mapping[str, Any], Made], Any]:
    """A join whose keyword arguments follow from the operation."""

    def join(_: StreamsBuilder, op: Mapping[str, Any], made: Made) -> Any:
        named = {name: of(op) for name, of in given.items()}
        return _JOINS[op["how"]](made[op["of"]])(made[op["with"]], both, **named, **_kept_of_join(op))

    return join


def _kept_of_join(op: Mapping[str, Any]) -> dict[str, Any]:
    return _kept(op) if op["op"] in ("join_tables", "join_foreign") else {}


_Operation = Callable[[StreamsBuilder, Mapping[str, Any], Made], Any]

_OPERATIONS: Mapping[str, _Operation] = {
    "stream": _stream,
    "table": lambda b, op, made: b.table(op["topic"], **_kept(op)),
    "global": lambda b, op, made: b.global_table(op["topic"]),
    "filter": lambda b, op, made: made[op["of"]].filter(_PREDICATES[op["f"]], **_kept(op)),
    "filter_not": lambda b, op, made: made[op["of"]].filter_not(_PREDICATES[op["f"]], **_kept(op)),
    "map_values": lambda b, op, made: made[op["of"]].map_values(_MAPPERS[op["f"]], **_kept(op)),
    "map_values_with_key": lambda b, op, made: made[op["of"]].map_values(
        lambda k, v: f"{text(k)}:{text(v)}", with_key=True, **_kept(op)
    ),
    "map": lambda b, op, made: made[op["of"]].map(_PAIRS[op["f"]]),
    "select_key": lambda b, op, made: made[op["of"]].select_key(_KEYS[op["f"]]),
    "flat_map_values": lambda b, op, made: made[op["of"]].flat_map_values(words),
    "merge": lambda b, op, made: made[op["of"]].merge(made[op["with"]]),
    "split": _split,
    "branch": lambda b, op, made: made[op["of"]][op["n"]],
    "repartition": lambda b, op, made: made[op["of"]].repartition(key=TEXT, value=TEXT, name=op.get("name")),
    "to_table": lambda b, op, made: made[op["of"]].to_table(**_kept(op)),
    "to_stream": lambda b, op, made: made[op["of"]].to_stream(),
    "process": _process,
    "process_values": _process,
    "group_by_key": lambda b, op, made: made[op["of"]].group_by_key(key=TEXT, value=TEXT, name=op.get("name")),
    "group_by": lambda b, op, made: made[op["of"]].group_by(
        _KEYS[op["f"]], key=TEXT, value=TEXT, name=op.get("name")
    ),
    "group_rows": lambda b, op, made: made[op["of"]].group_by(by_letter, key=TEXT, value=TEXT, name=op.get("name")),
    "windowed": _windowed,
    "count": _aggregated,
    "reduce": _aggregated,
    "aggregate": _aggregated,
    "numbers": lambda b, op, made: made[op["of"]].map_values(lambda v: None if v is None else str(v)),
    "suppress_windows": lambda b, op, made: made[op["of"]].suppress(until="window_closes"),
    "suppress_time": lambda b, op, made: made[op["of"]].suppress(after=10),
    "to_texts": lambda b, op, made: made[op["of"]]
    .to_stream(text_of_window)
    .map_values(lambda v: None if v is None else str(v)),
    "join_streams": _join_streams,
    "join_table": _joined(),
    "join_global": _joined(on=lambda op: _KEYS[op["f"]]),
    "join_tables": _joined(),
    "join_foreign": _joined(foreign_key=lambda op: lambda k, v: letter(v)),
    "to": lambda b, op, made: made[op["of"]].to(op["topic"], key=TEXT, value=TEXT),
}
