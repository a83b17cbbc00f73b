"""Counts that fall back after a sleeper woke: what is forgiven, and what is not."""

from __future__ import annotations

import struct
from dataclasses import replace

from compat_tests.cases.flows import COUNT
from compat_tests.oracles.changelog import StoreDump
from compat_tests.oracles.findings import kinds
from compat_tests.oracles.rows import Place, Row
from compat_tests.oracles.zombies import Asleep, fallen, fallen_too_far, judge_outputs, without
from compat_tests.planted.samples import KEYS, PARTITIONS, counts, inputs, placed

IN = inputs()
KEY = KEYS[0]
HERS = [row for row in IN if row.key == KEY]
PLACE = HERS[0].place
NAP = Asleep(committed={PLACE: 0}, stopped={PLACE: HERS[2].offset + 1}, woke={PLACE: HERS[5].offset + 1})
"""It had three of the key's eight inputs in work; three more were counted while it slept."""


def late(count: int, origin: Row) -> list[Row]:
    """All outputs, then one of the sleeper's."""
    right = counts(IN)
    spoiling = next(row for row in right if row.headers == origin.headers)
    return placed([*right, spoiling._replace(value=struct.pack(">q", count))])


def judged(found: list[Row], nap: Asleep = NAP) -> set[str]:
    return kinds(judge_outputs(COUNT, IN, found, PARTITIONS, [nap], fallen(found)))


def test_counts_that_only_rise_have_not_fallen() -> None:
    assert fallen(counts(IN)) == set()


def test_a_count_that_the_sleeper_had_in_work_may_fall_back() -> None:
    found = late(2, HERS[1])
    assert fallen(found) == {KEY}
    assert judged(found) == set()


def test_a_count_of_a_key_that_no_sleeper_had_in_work_may_not() -> None:
    assert judged(late(2, HERS[1]), replace(NAP, stopped={PLACE: 0})) == {"fell-back"}


def test_a_count_may_not_fall_below_what_it_was_when_the_sleeper_stopped() -> None:
    assert judged(late(1, HERS[0])) == {"too-low"}


def test_a_count_that_is_too_low_and_never_fell_is_not_forgiven() -> None:
    stuck = struct.pack(">q", len(HERS) - 1)
    found = [row._replace(value=stuck) if row.headers == HERS[-1].headers else row for row in counts(IN)]
    assert fallen(found) == set()
    assert judged(found) == {"too-low"}


def test_all_other_keys_are_held_to_everything() -> None:
    found = late(2, HERS[1])
    victim = next(row for row in reversed(found) if row.key == KEYS[1])
    assert judged([row for row in found if row is not victim]) >= {"lost"}


def test_a_key_that_fell_in_the_changelog_only_is_judged_by_its_last_output() -> None:
    assert fallen_too_far(IN, counts(IN), [NAP], {KEY}) == []


def test_a_spoilt_key_is_left_out_of_the_store() -> None:
    dump = StoreDump("0_0", "counts", 1, {KEY: b"1", KEYS[1]: b"2"})
    assert without({KEY}, dump).entries == {KEYS[1]: b"2"}


def test_only_the_sleepers_own_partitions_count() -> None:
    elsewhere = Asleep({Place("in", 9): 0}, {Place("in", 9): 99}, {Place("in", 9): 99})
    assert elsewhere.in_work(IN) == []
