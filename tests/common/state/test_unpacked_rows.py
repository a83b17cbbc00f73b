"""Rows that a store keeps unpacked until a commit, and the bytes of segments that it has at hand."""

from __future__ import annotations

import random
from typing import Any

from milestones.common.state.engine import EMPTY
from milestones.common.state.layers import StoreLayers
from milestones.common.state.stores.segmented_rows import SEGMENTS_USED, SegmentedRows
from milestones.common.state.stores.versioned_layout import NothingRemembered
from milestones.common.state.stores.window_layouts import SEGMENT


class Kept:
    """A store that keeps these rows unpacked."""

    def __init__(self, rows: dict[bytes, bytes | None]) -> None:
        self.rows = rows

    def pack(self) -> dict[bytes, bytes | None]:
        return self.rows

    def packed(self) -> None:
        self.rows = {}

    def unpacked_bytes(self) -> int:
        return len(self.rows)

    def merge(self) -> None: ...

    def drop_scope(self) -> None: ...


def joined(rows: dict[bytes, bytes | None]) -> StoreLayers:
    layers, kept = StoreLayers(EMPTY, [], NothingRemembered()), Kept(rows)
    layers.join(kept, kept)
    return layers


def test_a_commit_takes_unpacked_rows_and_none_that_a_roll_back_has_dropped() -> None:
    layers = joined({b"a": b"1"})
    layers.freeze()
    assert layers.frozen() == {b"a": b"1"}
    layers = joined({b"a": b"1"})
    layers.abort()
    layers.freeze()
    assert layers.frozen() == {}


def test_segments_at_hand_are_those_of_their_times_in_any_order() -> None:
    rows: Any = object.__new__(SegmentedRows)
    rows._begins = rows._ends = 0
    rows._of_segment, rows._segments_used, rows._segment_ms = b"", {}, 10
    chance = random.Random(1)
    for _ in range(3_000):
        time = chance.choice([0, 9, 10, 11, 19, 20, 10 * chance.randrange(3 * SEGMENTS_USED), chance.randrange(500)])
        assert rows._head(time) == SEGMENT.pack(time // 10)
        assert len(rows._segments_used) <= SEGMENTS_USED
