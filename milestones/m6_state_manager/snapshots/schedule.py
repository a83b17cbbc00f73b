"""Decides when snapshots are made, and of which stores. The caller gives the time.

*Guarantees*: all functions are pure.
*Assumes*: all times that a function compares are of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milestones.common.state.snapshots.garbage import GRACE_MS

if TYPE_CHECKING:
    from milestones.common.state.snapshots.snapshot import SnapshotManifest

GROWN: Final = 10
"""A snapshot is due early once its changelog has grown by the number of the store's entries, divided by this number."""

EARLIEST: Final = 10
"""No snapshot is due before the interval, divided by this number, is over."""

PATIENCE: Final = 2
"""An active task makes a snapshot only if no standby has made one for this number of intervals."""

PRUNED_MS: Final = GRACE_MS // 2
"""A partition is pruned at least once in this time, even if nothing changes in it."""


@dataclass(frozen=True)
class Timetable:
    """`interval_ms`: the time between two snapshots. `standbys`: True if tasks have standbys, which then make them."""

    interval_ms: int
    standbys: bool

    def due(self, now_ms: int, last_ms: int, grown: bool) -> bool:
        """Return whether a sub-topology's snapshots are due. `last_ms`: when they were last made or tried. `grown`:
        True if a changelog has grown enough for an early snapshot."""
        elapsed_ms = now_ms - last_ms
        return elapsed_ms >= self.interval_ms or (grown and elapsed_ms >= self.interval_ms // EARLIEST)

    def since_ms(self, now_ms: int, leads: bool) -> int | None:
        """Return the time after which a snapshot of another instance makes a new one needless. Returns None if a new
        one is made in any case. `leads`: True for an active task. Of several standbys, the first one that is due makes
        the snapshot."""
        if not leads:
            return now_ms - self.interval_ms // 2
        return now_ms - PATIENCE * self.interval_ms if self.standbys else None


def grown(offset: int, last: SnapshotManifest | None) -> bool:
    """Return whether the changelog has grown enough, at this offset, for an early snapshot. `last`: the store's last
    snapshot."""
    return last is not None and (offset - last.offset) * GROWN >= max(GROWN, last.entries)


def behind(offset: int, end: int, leads: bool, most: int) -> bool:
    """Return whether a store is too far behind its changelog's end for a snapshot. Between its offset and now, the
    changelog may have compacted away deletions. `most`: the number of records that a store may lack."""
    return not leads and end - offset > most


def fresh(manifest: SnapshotManifest, now_ms: int) -> bool:
    """Return whether at least half of the time is left for which the snapshot can be used. `now_ms`: wall clock."""
    until = manifest.usable_until_ms
    return until is None or 2 * now_ms <= manifest.created_ms + until


def prunable(now_ms: int, pruned_ms: int) -> bool:
    """Return whether it is time to prune a partition. `pruned_ms`: when that was last done."""
    return now_ms - pruned_ms >= PRUNED_MS


def by_importance(subtopologies: Iterable[int], weights: Mapping[int, int]) -> list[int]:
    """Sort the sub-topologies, the most important one first. `weights`: `task_priorities`."""
    return sorted(subtopologies, key=lambda number: (-weights.get(number, 1), number))
