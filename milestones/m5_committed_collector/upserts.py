"""Upsert sinks (`to(..., upserts=True)`): of each key and commit interval only the last record is sent.

A record that was sent can't be replaced any more. So records of upsert sinks wait for the cut of their interval. Later
records of the task for the same topics wait, too; otherwise an older record would come last. The collector has a
`WaitingOutputs` for each task:

    outputs of finished records --let_through--> sent immediately
                                       | of an upsert sink, or for a topic that has records waiting
                                       v
                                 WaitingOutputs --at the cut: take--> sent, before the interval's offsets

At the cut the boundary's last outputs pass `let_through` before `take`. The outputs that `take` returns are sent before
later outputs of the task. Later outputs belong to the next interval, so that no record replaces one from before a cut.
When an interval is resent, the same records are sent.

| | |
|---|---|
| slot | sink, topic, partition, key: the slot's last record is sent unchanged, at its own place in the order |
| partition | -1 if the key's hash decides; each partition that a partitioner chooses is another slot |
| topic of a function | each topic has slots of its own, and waiting records of its own |
| two upsert sinks, one topic | two slots: the last record of each is sent, and the later one wins |
| dead letters | are never replaced: they are `DeadLetter`s, which no sink makes |

*Guarantees*: a compacted topic keeps the same records in the same order as if all had been sent. There is one
exception. If Kafka refuses the last record of a slot and the handler skips it, the key keeps its row of an earlier
interval: the records that were replaced are gone.
*Assumes*: sinks hand over plain tuples, in order. Records of upsert sinks have a key (`topology/sink.py` refuses
others). Changelog records don't come here: from M5 on stores log at a commit. Outputs of two tasks have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from milestones.common.records import KEY, NODE, PARTITION, TOPIC, DeadLetter, Emitted
from milestones.common.topology.nodes import SinkNode

if TYPE_CHECKING:
    from milestones.common.topology.nodes import SubTopology

FEW: Final = 1_000
"""Up to this number of waiting records, replaced ones aren't removed before the cut."""


def upsert_sinks(subtopology: SubTopology) -> frozenset[str]:
    """Return the names of the sub-topology's upsert sinks. Most sub-topologies have none."""
    return frozenset(node.name for node in subtopology.nodes if isinstance(node, SinkNode) and node.upserts)


def collapsed(outputs: Sequence[Emitted], upserts: frozenset[str]) -> Sequence[Emitted]:
    """Return the outputs without records of upsert sinks that a later record of the same slot replaces. Without upsert
    sinks, returns the sequence itself."""
    if not upserts:
        return outputs
    kept: list[Emitted] = []
    taken: set[tuple[str, str, int, bytes | None]] = set()
    for output in reversed(outputs):
        if output[NODE] in upserts and not isinstance(output, DeadLetter):
            slot = output[NODE], output[TOPIC], output[PARTITION], output[KEY]
            if slot in taken:
                continue
            taken.add(slot)
        kept.append(output)
    kept.reverse()
    return kept


class WaitingOutputs:
    """Outputs of one task that wait for the cut of the open interval. `suppressed`: the number of outputs that were
    replaced so far, earlier intervals included.

    Replaced outputs are removed whenever the number of waiting ones has doubled. So a key that is updated often takes
    the memory of two records at most.

    *Concurrency*: belongs to the collector's thread.
    """

    __slots__ = ("_enough", "_topics", "_upserts", "outputs", "suppressed")

    def __init__(self, upserts: frozenset[str]) -> None:
        """`upserts`: the upsert sinks of the task's sub-topology, from `upsert_sinks`."""
        self._upserts = upserts
        self._topics: set[str] = set()
        self._enough = FEW
        self.outputs: list[Emitted] = []
        self.suppressed: int = 0

    def let_through(self, outputs: Sequence[Emitted]) -> Sequence[Emitted]:
        """Keep the outputs that must wait, and return the others, in order. Without upsert sinks, returns the sequence
        itself."""
        if not self._upserts:
            return outputs
        upserts, topics, wait = self._upserts, self._topics, self.outputs.append
        others: list[Emitted] = []
        for output in outputs:
            if output[TOPIC] in topics:
                wait(output)
            elif output[NODE] in upserts and not isinstance(output, DeadLetter):
                topics.add(output[TOPIC])
                wait(output)
            else:
                others.append(output)
        if len(self.outputs) > self._enough:
            self._collapse()
            self._enough = max(FEW, 2 * len(self.outputs))
        return others

    def take(self) -> list[Emitted]:
        """Return the waiting outputs that are sent at the cut. The caller owns the list from now on."""
        self._collapse()
        taken, self.outputs = self.outputs, []
        self._topics.clear()
        return taken

    def _collapse(self) -> None:
        left = list(collapsed(self.outputs, self._upserts))
        self.suppressed += len(self.outputs) - len(left)
        self.outputs = left
