"""Decides which rows of a store have expired, and which old rows must be kept.

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
    """Return the earliest time that a store must have seen if the rows of these spans have expired."""
    (segment,) = SEGMENT.unpack(gone[0][1])
    return int(segment * spec.segment_ms + spec.retention_ms - 1)


def without_gone(entries: Batch, gone: Sequence[Span]) -> Batch:
    """Return the entries that lie in none of the spans."""
    if not gone:
        return entries
    return {key: value for key, value in entries.items() if not any(first <= key < end for first, end in gone)}


def kept_by_emission(spec: StoreSpec, emitted: int) -> int:
    """Return the highest time of a store at which no window has expired that wasn't emitted. `emitted`: the time up to
    which windows are emitted."""
    return emitted - spec.window_ms + spec.retention_ms


def gone_by(spec: StoreSpec, observed: int, emitted: int | None) -> int:
    """Return the time by which rows of a store expire: the highest time that the store has seen, limited so that
    windows that still have to be emitted stay.

    `emitted`: the time up to which windows are emitted. None for a store without windows to emit.
    """
    return observed if emitted is None else min(observed, kept_by_emission(spec, emitted))


def gone_by_commit(spec: StoreSpec, committed: Mapping[str, int]) -> int:
    """Return `gone_by` for the numbers of a commit."""
    emitted = committed.get(spec.name, UNKNOWN) if spec.closing else None
    return gone_by(spec, committed.get(observed_time(spec.name), UNKNOWN), emitted)
