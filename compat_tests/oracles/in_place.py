"""What a process went through: that it stayed where it was, and that a crash cost it no more than it had to.

| kind | what was found |
|---|---|
| rejoined | its group has a newer generation |
| restored | a task was restored again |
| reopened | a store was opened again |
| wiped | a store isn't the one that it was |
| restored-more | more changelog records were restored after a crash than the disk could lack |

*Guarantees*: pure.
*Assumes*: nobody else joins or leaves meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from compat_tests.oracles.findings import Finding, Findings


@dataclass(frozen=True)
class Standing:
    """A process at one moment. `restorations`: how many it has made since its start; by task and store: `stores`, what
    RocksDB calls the database itself, and when it was `opened`."""

    generation: int
    restorations: int
    stores: Mapping[str, str] = field(default_factory=dict)
    opened: Mapping[str, datetime] = field(default_factory=dict)


def in_place(before: Standing, after: Standing) -> Findings:
    """Nothing has moved, been closed or read again."""
    findings = kept(before.stores, after.stores)
    if after.generation != before.generation:
        findings.append(Finding("rejoined", f"generation {after.generation}, was {before.generation}"))
    if after.restorations != before.restorations:
        findings.append(Finding("restored", f"{after.restorations} restorations, were {before.restorations}"))
    for store, opened in after.opened.items():
        if store in before.opened and opened != before.opened[store]:
            findings.append(Finding("reopened", f"{store} at {opened}, was open since {before.opened[store]}"))
    return findings


def kept(before: Mapping[str, str], after: Mapping[str, str]) -> Findings:
    """Each store is the one that it was."""
    return [
        Finding("wiped", f"{store} is the database {after.get(store)}, was {was}")
        for store, was in before.items()
        if after.get(store) != was
    ]


def no_more_than(lacking: Counter[str], restored: Counter[str]) -> Findings:
    """What was restored after a crash, by task; `lacking`: what the disk may have lacked."""
    return [
        Finding("restored-more", f"{task}: {count} changelog records, the disk could lack {lacking[task]}")
        for task, count in restored.items()
        if count > lacking[task]
    ]
