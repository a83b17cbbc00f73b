"""The plan of an audit: which part of the inputs counts, which part of outputs and changelogs belongs to it.

An application may run meanwhile. Input that was committed before anything was looked at must be in what is found then
(`sure`); input that was committed by the end may be.

    committed (sure) ---> ends of outputs and changelogs ---> all decided up to there ---> committed (end)

*Guarantees*: under exactly once every output of an input before `sure` lies before the ends, and every output before
the ends is that of an input before `end`. Under at least once the same, with all input for `end`: outputs are visible
before their offsets are.
*Assumes*: the inputs' history is whole from `begin` on, or `notes` says that it isn't.
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
    """An input partition of a task. Offsets: `begin` <= what counts for sure < `sure` <= what may count < `end`.
    `computed`: URL of a folder with what upstream should have written to it, where Kafka has it no longer."""

    partition: TopicPartition
    begin: int
    sure: int
    end: int
    computed: str | None = None


@dataclass(frozen=True)
class StoreRange:
    """A store's changelog partition, up to where it counts."""

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
    """`levels`: the folds, those that need others' results after them. `outputs`: of all topics that are compared.
    `doubts`: by sub-topology, why its outputs need not come out the same a second time. `skipped`: by sub-topology, why
    it isn't looked at. `live`: input was committed meanwhile. `untimed`: topics whose timestamps the broker sets.
    `upserted`: topics of upsert sinks, which lack records when the application was at M5 or later."""

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
        """Topics that Kafka no longer has in whole, and that others read."""
        return frozenset(s.partition.topic for level in self.levels for job in level for s in job.sources if s.computed)

    @property
    def size(self) -> int:
        """Offsets of input that is in Kafka."""
        return sum(job.size for level in self.levels for job in level)
