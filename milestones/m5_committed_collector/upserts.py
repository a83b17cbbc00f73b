"""Upsert sinks (`to(..., upserts=True)`): of each key and commit interval only the last record is sent.

A record that was sent can't be replaced any more. So records of upsert sinks wait for the cut of their interval. Later
records of the task for the same topics wait, too; otherwise an older record would come last. The collector has a
`WaitingOutputs` for each task:

    outputs of finished records --let_through--> sent at once
                                       | of an upsert sink, or for a topic that has records waiting
                                       v
                                 WaitingOutputs --at the cut: take--> sent, before the interval's offsets

At the cut the boundary's last outputs pass `let_through` before `take`; what was taken is sent before later outputs of
the task. What comes later is the next interval's: no key is collapsed over a cut. An interval that is resent is the
one that was taken.

| | |
|---|---|
| slot | sink, topic, partition, key: of each the last record stays where it stood, as it is: time, headers, tombstone |
| partition | -1: the key's hash. What a partitioner chooses are other slots, as each partition is read by itself |
| topic of a function | each topic has slots of its own, and records that wait |
| two upsert sinks, one topic | two slots: the last record of each stays, and the later one has the last word |
| dead letters | stay, though they carry a sink's name and an input's key: they are `Output`s, which no sink makes |

*Guarantees*: a compacted topic keeps the same records in the same order as if all had been sent. One exception: Kafka
refuses the last record of a slot and the handler skips it; then the key keeps the row of the former interval, not the
one that was collapsed.
*Assumes*: sinks hand over plain tuples, in order, those of upsert sinks with a key (`topology/sink.py` refuses others).
Changelog records aren't among them: from M5 on stores log at a commit. Between tasks there is no order to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from milestones.common.records import Emitted, Output
from milestones.common.topology.nodes import SinkNode

if TYPE_CHECKING:
    from milestones.common.topology.nodes import SubTopology

FEW: Final = 1_000
"""Waiting records for which no room is made before the cut."""


def upsert_sinks(subtopology: SubTopology) -> frozenset[str]:
    """The names of the sinks whose records collapse; mostly there are none."""
    return frozenset(node.name for node in subtopology.nodes if isinstance(node, SinkNode) and node.upserts)


def collapsed(outputs: Sequence[Emitted], upserts: frozenset[str]) -> Sequence[Emitted]:
    """The outputs without those of sinks in `upserts` that a later one of their slot replaces. Without such sinks the
    sequence itself."""
    if not upserts:
        return outputs
    kept: list[Emitted] = []
    taken: set[tuple[str, str, int, bytes | None]] = set()
    for output in reversed(outputs):
        if output[6] in upserts and not isinstance(output, Output):
            slot = output[6], output[0], output[1], output[2]
            if slot in taken:
                continue
            taken.add(slot)
        kept.append(output)
    kept.reverse()
    return kept


class WaitingOutputs:
    """One task's outputs that wait for the cut of the open interval. `suppressed`: the number of those left out so far,
    of earlier intervals, too.

    Collapsed whenever they have doubled, so that a key that is updated often takes the memory of two records at most.

    *Concurrency*: belongs to the collector's thread.
    """

    __slots__ = ("_enough", "_topics", "_upserts", "outputs", "suppressed")

    def __init__(self, upserts: frozenset[str]) -> None:
        """`upserts`: as `upsert_sinks` gives them for the task's sub-topology."""
        self._upserts = upserts
        self._topics: set[str] = set()
        self._enough = FEW
        self.outputs: list[Emitted] = []
        self.suppressed: int = 0

    def let_through(self, outputs: Sequence[Emitted]) -> Sequence[Emitted]:
        """Keep the outputs that wait; returns the others, in order. Without upsert sinks the sequence itself."""
        if not self._upserts:
            return outputs
        upserts, topics, wait = self._upserts, self._topics, self.outputs.append
        others: list[Emitted] = []
        for output in outputs:
            if output[0] in topics:
                wait(output)
            elif output[6] in upserts and not isinstance(output, Output):
                topics.add(output[0])
                wait(output)
            else:
                others.append(output)
        if len(self.outputs) > self._enough:
            self._collapse()
            self._enough = max(FEW, 2 * len(self.outputs))
        return others

    def take(self) -> list[Emitted]:
        """At the cut: what is sent of the outputs that have waited, which the caller owns from now on."""
        self._collapse()
        taken, self.outputs = self.outputs, []
        self._topics.clear()
        return taken

    def _collapse(self) -> None:
        left = list(collapsed(self.outputs, self._upserts))
        self.suppressed += len(self.outputs) - len(left)
        self.outputs = left
