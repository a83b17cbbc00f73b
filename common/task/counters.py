"""Counts of a task's work since the task was made, for metrics.

*Guarantees*: the counts only grow. Counting costs nothing per record, unless nodes are counted.
*Assumes*: the thread that owns the task writes the counts. Other threads read them and compute differences.
"""

from __future__ import annotations

from typing import Any

from milestones.common.topology.program import Process


class NodeCounters:
    """The number of records that one node received."""

    __slots__ = ("processed",)

    def __init__(self) -> None:
        self.processed: int = 0


class NodeTally:
    """A count of a node's work."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: int = 0


class TaskCounters:
    """`processed` counts input records, including skipped ones. `punctuated` counts punctuation calls by both clocks,
    `restored` counts changelog records, and `rolled_back` counts roll-backs. Times are in ns. The time of processing
    doesn't contain that of punctuations. `counting` fills `nodes`. `tallies` contains the counts of operators, by node
    and name."""

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
        """Return the count that a node has under this name. A count that doesn't exist is created."""
        return self.tallies.setdefault((node, what), NodeTally())

    def counting(self, node: str, process: Process) -> Process:
        """Return a function that counts each call for the node and then calls `process`."""
        counters = self.nodes.setdefault(node, NodeCounters())

        def counted(key: Any, value: Any, timestamp: int) -> None:
            counters.processed += 1
            process(key, value, timestamp)

        return counted
