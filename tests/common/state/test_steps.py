"""How much goes into an engine at once."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from milestones.common.state.engine import Batch
from milestones.common.state.steps import STEP_BYTES, STEP_ENTRIES, joint_steps, size, steps

KIB = 1024


def batch(sizes: list[int | None]) -> Batch:
    return {b"%06d" % number: None if size is None else bytes(size) for number, size in enumerate(sizes)}


@given(st.lists(st.none() | st.sampled_from([0, 1, 100 * KIB, 500 * KIB, 2_000 * KIB]), max_size=20))
def test_steps_are_the_batch_in_its_order_and_none_is_larger_than_it_must_be(sizes: list[int | None]) -> None:
    whole = batch(sizes)
    parts = list(steps(whole))
    assert [entry for part in parts for entry in part.items()] == list(whole.items())
    assert all(len(part) == 1 or size(part) <= STEP_BYTES for part in parts)
    assert all(size(one) + size(dict([next(iter(two.items()))])) > STEP_BYTES for one, two in pairwise(parts))


def test_many_small_entries_are_cut_by_their_number() -> None:
    parts = list(steps(batch([1] * (2 * STEP_ENTRIES + 1))))
    assert [len(part) for part in parts] == [STEP_ENTRIES, STEP_ENTRIES, 1]


def test_an_empty_batch_is_one_step() -> None:
    assert list(steps({})) == [{}]


def test_small_batches_share_a_step_and_all_steps_together_are_the_batches() -> None:
    batches: dict[str, Batch] = {
        "small": {b"a": b"1"}, "empty": {}, "other": {b"a": None, b"b": b"2"},
        "large": {b"%05d" % number: b"v" for number in range(STEP_ENTRIES + 10)}, "last": {b"z": b"3"},
        "wide": {b"w": bytes(STEP_BYTES)},
    }  # fmt: skip
    found = list(joint_steps(batches))
    assert [list(step) for step in found] == [["small", "other"], ["large"], ["large", "last"], ["wide"]]
    together: dict[str, dict[bytes, bytes | None]] = {name: {} for name in batches}
    for step in found:
        assert sum(map(len, step.values())) <= STEP_ENTRIES
        for name, part in step.items():
            together[name].update(part)
    assert together == batches
    assert list(joint_steps({"empty": {}})) == []
