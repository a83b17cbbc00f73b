"""`KTable.suppress`, as an operation of the graph.

*Guarantees*: Kafka Streams' names and settings (`Suppressed`). With `until="window_closes"`, the grace is that of the
windows above the table. If there are several, it is the longest.
*Assumes*: one thread builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from milestones.common.errors import TopologyError
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.graph import Graph, GraphNode
from milestones.common.topology.naming import check_name
from milestones.common.topology.operators.suppression import Suppress
from milestones.common.topology.serde_choice import Choice
from milestones.common.topology.windows import Duration, milliseconds
from milestones.common.windowed import FOREVER

Until: TypeAlias = Literal["window_closes"]
WhenFull: TypeAlias = Literal["stop", "emit"]

_UNTIL: Final = get_args(Until)
_WHEN_FULL: Final = get_args(WhenFull)
_PREFIX: Final = "KTABLE-SUPPRESS-"


@dataclass(frozen=True)
class Suppression:
    """A user's choices: how long updates are kept back, the bounds of the buffer, and its store."""

    until: Until | None
    after: Duration | None
    max_records: int | None
    max_bytes: int | None
    when_full: WhenFull | None
    name: str | None
    logging: bool = True
    in_memory: bool = False
    changelog_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.until is None) == (self.after is None):
            raise TopologyError(
                "suppress needs one of until='window_closes', for the result of each window, and after=DURATION, for "
                "the last update of a time"
            )
        for name, choice, choices in (("until", self.until, _UNTIL), ("when_full", self.when_full, _WHEN_FULL)):
            if choice is not None and choice not in choices:
                raise TopologyError(f"{name} of suppress must be {' or '.join(map(repr, choices))}, not {choice!r}")
        if self.until is not None and self.when_full == "emit":
            raise TopologyError(
                "suppress until windows close can't emit early: a window would have several results. Leave the buffer "
                "without bounds, or stop when it is full (when_full='stop')"
            )
        for name, bound in (("max_records", self.max_records), ("max_bytes", self.max_bytes)):
            if bound is not None and (type(bound) is not int or bound < 0):
                raise TopologyError(f"{name} of suppress must be a number of at least 0, not {bound!r}")

    def named(self, graph: Graph) -> tuple[str, str]:
        """Return the names of the node and the store. A name that the user gave uses up no number here, unlike for
        other operators."""
        if self.name is not None:
            return check_name(self.name, "an operator"), check_name(f"{self.name}-store", "a store")
        return graph.names.processor(_PREFIX), graph.names.store(_PREFIX)

    def operator(self, store: str, table: GraphNode) -> Suppress:
        wait_ms = grace_above(table) if self.after is None else milliseconds(self.after, "the time of suppress")
        stops = self.when_full == "stop" or self.until is not None
        max_records, max_bytes = (
            FOREVER if bound is None else bound for bound in (self.max_records, self.max_bytes)
        )
        return Suppress(store, wait_ms, self.until is not None, max_records, max_bytes, stops)

    def spec(self, store: str, key: Choice, value: Choice) -> StoreSpec:
        return StoreSpec(
            name=store,
            kind="suppress",
            persistent=not self.in_memory,
            logged=self.logging,
            key_serde=key,
            value_serde=value,
            changelog_config=dict(self.changelog_config),
        )


def grace_above(node: GraphNode) -> int:
    """Return the longest grace of the windows above a node. Raises `TopologyError` if a path from the node upward has
    no windows."""
    return _grace(node, ())


def _grace(node: GraphNode, way: tuple[str, ...]) -> int:
    if node.grace_ms is not None:
        return node.grace_ms
    way = (node.name, *way)
    if not node.parents:
        raise TopologyError(
            f"suppress(until='window_closes') needs a table of windows, and no windows lead to {way[-1]}: the way is "
            f"{' -> '.join(way[1:])}. Group by windows first (group_by_key().windowed_by(...)), or keep updates back "
            "for a time (after=DURATION)"
        )
    parents = [parent for parent in node.parents if parent not in node.looks_up]
    return max(_grace(parent, way) for parent in parents)
