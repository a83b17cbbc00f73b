"""What committed offsets tell about a commit that nobody answered."""

from __future__ import annotations

import pytest

from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.m3_fencing_tolerance.commit_outcome import CommitOutcome, outcome
from tests.milestones.m3_fencing_tolerance.tolerant import numbered

A, B = TopicPartition("in", 0), TopicPartition("in", 1)

AFTER_OURS: dict[str, tuple[OffsetAndMetadata | None, CommitOutcome]] = {
    "our number and id": (numbered(7, 3), CommitOutcome.COMMITTED),
    "the number before": (numbered(5, 2), CommitOutcome.ROLLED_BACK),
    "the number before, of another instance": (numbered(5, 2, "other"), CommitOutcome.ROLLED_BACK),
    "the number before, at the same offset": (numbered(7, 2), CommitOutcome.ROLLED_BACK),
    "nothing": (None, CommitOutcome.ROLLED_BACK),
    "an offset that somebody set by hand": (OffsetAndMetadata(7, ""), CommitOutcome.ROLLED_BACK),
    "our number under another id": (numbered(7, 3, "other"), CommitOutcome.FOREIGN),
    "a later number": (numbered(9, 4, "other"), CommitOutcome.FOREIGN),
    "our number and id at another offset, of a copy of us": (numbered(8, 3), CommitOutcome.FOREIGN),
}


@pytest.mark.parametrize("found", AFTER_OURS.values(), ids=AFTER_OURS)
def test_a_commit_with_number_3_to_offset_7_finds(found: tuple[OffsetAndMetadata | None, CommitOutcome]) -> None:
    at, expected = found
    assert outcome({A: numbered(7, 3)}, {} if at is None else {A: at}) is expected


def test_an_offset_that_did_not_move_is_told_by_its_number() -> None:
    assert outcome({A: numbered(7, 3)}, {A: numbered(7, 3)}) is CommitOutcome.COMMITTED
    assert outcome({A: numbered(7, 3)}, {A: numbered(7, 2)}) is CommitOutcome.ROLLED_BACK


def test_all_partitions_have_to_agree() -> None:
    tried = {A: numbered(7, 3), B: numbered(2, 1)}
    assert outcome(tried, dict(tried)) is CommitOutcome.COMMITTED
    assert outcome(tried, {A: numbered(5, 2)}) is CommitOutcome.ROLLED_BACK
    assert outcome(tried, {A: numbered(7, 3)}) is CommitOutcome.FOREIGN
