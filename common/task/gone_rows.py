"""Which rows of a store are gone after a time, and which are kept though they are old.

*Guarantees*: pure functions.
*Assumes*: spans are those of `Layout.expired`: the rows of whole segments, the earliest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milestones.common.state.cells import UNKNOWN
from milestones.common.state.engine import Batch, Span
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.window_layouts import SEGMENT
from milestones.common.state.times import observed_time


def seen_before(gone: Sequence[Span], spec: StoreSpec) -> int:
    """The least time that a store has seen of which those rows are gone."""
    (segment,) = SEGMENT.unpack(gone[0][1])
    return int(segment * spec.segment_ms + spec.retention_ms - 1)


def without_gone(entries: Batch, gone: Sequence[Span]) -> Batch:
    """The entries that aren't in a span."""
    if not gone:
        return entries
    return {key: value for key, value in entries.items() if not any(first <= key < end for first, end in gone)}


def kept_by_emission(spec: StoreSpec, emitted: int) -> int:
    """The highest time of a store by which no window is gone that isn't emitted. `emitted`: up to when windows are."""
    return emitted - spec.window_ms + spec.retention_ms


def gone_by(spec: StoreSpec, observed: int, emitted: int | None) -> int:
    """The time by which rows of a store are gone: the highest one that it has seen, but a window that is still to be
    emitted stays. `emitted`: up to when windows are; None for a store that has none to emit."""
    return observed if emitted is None else min(observed, kept_by_emission(spec, emitted))


def gone_by_commit(spec: StoreSpec, committed: Mapping[str, int]) -> int:
    """`gone_by` the numbers of a commit."""
    emitted = committed.get(spec.name, UNKNOWN) if spec.closing else None
    return gone_by(spec, committed.get(observed_time(spec.name), UNKNOWN), emitted)
