"""Offsets as Spark keeps them in checkpoints, and how far a micro-batch goes. Pure.

    {"topic": {"0": 23, "1": 42}}       next offset to read, as the JVM connector writes it

*Guarantees*: `of_json(as_json(offsets)) == offsets`; a limited end is at or behind the start of each partition, and
moves whenever anything is left.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from milestones.common.records import TopicPartition

Offsets = Mapping[TopicPartition, int]
Json = dict[str, dict[str, int]]


def as_json(offsets: Offsets) -> Json:
    found: Json = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def of_json(written: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(p)): int(at) for topic, places in written.items() for p, at in places.items()}


def limited(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """An end at most about `most` records after `start`, which knows all partitions of `end`. Each may have the same
    share, and at least one record; what one doesn't need goes to the others, so that a large backlog of one keeps no
    other waiting."""
    left = {partition: max(0, at - start[partition]) for partition, at in end.items()}
    found, room = {partition: start[partition] for partition in end}, most
    waiting = sorted((partition for partition in left if left[partition]), key=lambda partition: left[partition])
    for taken, partition in enumerate(waiting):
        share = min(left[partition], max(1, room // (len(waiting) - taken)))
        found[partition] += share
        room -= share
    return found


def behind(offsets: Offsets, target: Offsets) -> dict[TopicPartition, int]:
    """The offsets, none behind the target's; partitions that it doesn't have are left out."""
    return {partition: min(at, target[partition]) for partition, at in offsets.items() if partition in target}
