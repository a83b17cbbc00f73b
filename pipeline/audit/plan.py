"""The plan of an audit says which input offsets are processed, and which parts of the outputs and changelogs are
compared with the results.

An application may run meanwhile. The outputs of input that was committed before the topics were read (`sure`) must be
found. The outputs of input that was committed later, by the end, may be found.

    committed (sure) ---> ends of outputs and changelogs ---> all decided up to there ---> committed (end)

*Guarantees*: under `exactly_once_v2`, every output of an input before `sure` lies before the ends of the output topics,
and every output before these ends comes from an input before `end`. Under `at_least_once`, outputs are visible before
their offsets are committed, so that `end` is the end of all input.
*Assumes*: Kafka has the whole history of the inputs from `begin` on. If not, `notes` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.pipeline.reading import PartitionRange


@dataclass(frozen=True)
class AuditedPartition:
    """An input partition of a task. Offsets from `begin` to before `sure` are committed for certain. Offsets from
    `sure` to before `end` may be committed. `computed`: URL of a folder with the records that should have been written
    to the partition; set if Kafka has already deleted them.
    """

    partition: TopicPartition
    begin: int
    sure: int
    end: int
    computed: str | None = None


@dataclass(frozen=True)
class StoreRange:
    """A store's changelog partition, and the offset up to which it is compared."""

    spec: StoreSpec
    changelog: TopicPartition
    first: int
    end: int


@dataclass(frozen=True)
class FoldJob:
    """One task's history. `partitions`: of all topics, by name. `consumer`: settings that read committed."""

    task: TaskId
    sources: tuple[AuditedPartition, ...]
    stores: tuple[StoreRange, ...]
    partitions: Mapping[str, int]
    consumer: Mapping[str, Any] = field(repr=False)

    @property
    def size(self) -> int:
        """Offsets of input that is in Kafka."""
        return sum(source.end - source.begin for source in self.sources if source.computed is None)


@dataclass(frozen=True)
class AuditPlan:
    """`levels`: the folds; a fold that needs the results of others is in a later level. `outputs`: the ranges of all
    topics that are compared. `doubts`: for each sub-topology, why its outputs may differ when input is processed a
    second time. `skipped`: for each sub-topology that isn't checked, the reason. `live`: input was committed meanwhile.
    `untimed`: topics whose timestamps the broker sets. `upserted`: topics of upsert sinks, which lack earlier records
    of a key if the application ran on M5 or later.
    """

    levels: tuple[tuple[FoldJob, ...], ...]
    outputs: tuple[PartitionRange, ...]
    doubts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    live: bool = False
    untimed: frozenset[str] = frozenset()
    upserted: frozenset[str] = frozenset()

    @property
    def computed(self) -> frozenset[str]:
        """The topics from which Kafka has deleted records, and that other sub-topologies read."""
        return frozenset(s.partition.topic for level in self.levels for job in level for s in job.sources if s.computed)

    @property
    def size(self) -> int:
        """Offsets of input that is in Kafka."""
        return sum(job.size for level in self.levels for job in level)
