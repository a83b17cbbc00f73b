"""The report of an audit.

*Guarantees*: plain data; `ok` is False if there is an error that isn't doubtful.
*Assumes*: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from milestones.pipeline.audit.rows import Problem

Counts = Mapping[Problem, int]


@dataclass(frozen=True)
class Finding:
    """One error that the audit has found. `where`: topic and partition, and the offset if there is one. `key`,
    `expected`, `actual`: as text. `source`: the input record that led to the output, empty if it isn't known. `time`:
    ms since the epoch.
    """

    problem: Problem
    where: str
    key: str
    expected: str = ""
    actual: str = ""
    source: str = ""
    time: int = -1


@dataclass(frozen=True)
class Audited:
    """One output topic, or one store. `expected`, `actual`: records or entries. `doubts`: reasons why the differences
    may not be errors. `examples`: some of each problem. `timeline`: (ms since the epoch, expected records from then
    on).
    """

    name: str
    expected: int
    actual: int
    counts: Counts
    doubts: Sequence[str] = ()
    examples: Sequence[Finding] = ()
    timeline: Sequence[tuple[int, int]] = ()

    @property
    def found(self) -> int:
        """How many problems."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class AuditReport:
    """`inputs`: records that were folded, by partition. `skipped`: for each sub-topology that wasn't checked, the
    reason. `live`: True if the application committed during the audit; its uncommitted work is left out then.
    """

    application_id: str
    guarantee: str
    topics: Sequence[Audited]
    stores: Sequence[Audited]
    inputs: Mapping[str, int]
    seconds: float
    notes: Sequence[str] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)
    live: bool = False

    @property
    def records(self) -> int:
        """Input records that were folded."""
        return sum(self.inputs.values())

    @property
    def wrong(self) -> int:
        """Problems beyond doubt."""
        return sum(one.found for one in [*self.topics, *self.stores] if not one.doubts)

    @property
    def doubtful(self) -> int:
        """The differences that may have a harmless reason."""
        return sum(one.found for one in [*self.topics, *self.stores] if one.doubts)

    @property
    def ok(self) -> bool:
        """Nothing is wrong beyond doubt."""
        return self.wrong == 0
