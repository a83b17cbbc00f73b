"""The counts of a task's work since it was made, for metrics.

*Guarantees*: the ints only grow; counting costs nothing per record, unless nodes are counted.
*Assumes*: the thread that has the task writes the ints; other threads read them and take differences.
"""

from __future__ import annotations

from typing import Any

from milestones.common.topology.program import Process


class NodeCounters:
    """The number of records that one node was given."""

    __slots__ = ("processed",)

    def __init__(self) -> None:
        self.processed: int = 0


class NodeTally:
    """A count of a node's work."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class TaskCounters:
    """`processed` counts input records, skipped ones included, `punctuated` calls of both clocks, `restored` changelog
    records, `rolled_back` roll-backs. Times are in ns; those of punctuations aren't part of processing. `nodes` is
    filled by `counting`; `tallies` has what operators count, by node and name."""

    __slots__ = ("nodes", "process_ns", "processed", "punctuate_ns", "punctuated", "restored", "rolled_back",
                 "tallies")  # fmt: skip

    process_ns: int
    processed: int
    punctuate_ns: int
    punctuated: int
    restored: int
    rolled_back: int

    def __init__(self) -> None:
        self.processed = self.process_ns = 0
        self.punctuated = self.punctuate_ns = 0
        self.restored = self.rolled_back = 0
        self.nodes: dict[str, NodeCounters] = {}
        self.tallies: dict[tuple[str, str], NodeTally] = {}

    def tally(self, node: str, what: str) -> NodeTally:
        """The count of that name of a node."""
        return self.tallies.setdefault((node, what), NodeTally())

    def counting(self, node: str, process: Process) -> Process:
        """`process`, with each call counted as the node's."""
        counters = self.nodes.setdefault(node, NodeCounters())

        def counted(key: Any, value: Any, timestamp: int) -> None:
            counters.processed += 1
            process(key, value, timestamp)

        return counted
