"""When snapshots are made, and of what: decisions, without a clock of their own.

*Guarantees*: pure.
*Assumes*: times are of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milestones.common.state.snapshots.garbage import GRACE_MS

if TYPE_CHECKING:
    from milestones.common.state.snapshots.snapshot import SnapshotManifest

GROWN: Final = 10
"""A snapshot is due early once its changelog has grown by its store divided by this number."""

EARLIEST: Final = 10
"""It is never due before the interval divided by this number is over."""

PATIENCE: Final = 2
"""The intervals that an active task leaves snapshots to its standbys."""

PRUNED_MS: Final = GRACE_MS // 2
"""How often at least a partition is pruned, also one in which nothing changes."""


@dataclass(frozen=True)
class Timetable:
    """`interval_ms`: between two snapshots; `standbys`: whether tasks have standbys, which make them then."""

    interval_ms: int
    standbys: bool

    def due(self, now_ms: int, last_ms: int, grown: bool) -> bool:
        """Whether a sub-topology's snapshots are to be made. `last_ms`: when that was done or tried last; `grown`:
        whether a changelog has."""
        elapsed_ms = now_ms - last_ms
        return elapsed_ms >= self.interval_ms or (grown and elapsed_ms >= self.interval_ms // EARLIEST)

    def since_ms(self, now_ms: int, leads: bool) -> int | None:
        """A snapshot isn't made where another instance has made one later than this; None: it is made anyway. `leads`:
        of an active task. Of several standbys, the one whose time comes first makes it."""
        if not leads:
            return now_ms - self.interval_ms // 2
        return now_ms - PATIENCE * self.interval_ms if self.standbys else None


def grown(offset: int, last: SnapshotManifest | None) -> bool:
    """Whether a changelog has, at this offset, since the store's last snapshot."""
    return last is not None and (offset - last.offset) * GROWN >= max(GROWN, last.entries)


def behind(offset: int, end: int, leads: bool, most: int) -> bool:
    """Whether a store is too far behind its changelog's end for a snapshot of now, as the changelog may have forgotten
    deletions of the time between. `most`: records that one may lack and count as caught up."""
    return not leads and end - offset > most


def fresh(manifest: SnapshotManifest, now_ms: int) -> bool:
    """Whether half of a snapshot's time at least is left (wall clock)."""
    until = manifest.usable_until_ms
    return until is None or 2 * now_ms <= manifest.created_ms + until


def prunable(now_ms: int, pruned_ms: int) -> bool:
    """Whether a partition is to be pruned again."""
    return now_ms - pruned_ms >= PRUNED_MS


def by_importance(subtopologies: Iterable[int], weights: Mapping[int, int]) -> list[int]:
    """The most important one first."""
    return sorted(subtopologies, key=lambda number: (-weights.get(number, 1), number))
