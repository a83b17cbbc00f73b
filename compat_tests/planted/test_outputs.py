"""Faults planted in outputs."""

from __future__ import annotations

from dataclasses import replace

from compat_tests.oracles.findings import kinds
from compat_tests.oracles.outputs import at_least_once, exact, in_order, table
from compat_tests.oracles.rows import Place, origin_of
from compat_tests.planted.samples import COPY, COUNT, PAIRS, PARTITIONS, copies, counts, inputs, pairs, placed, swapped

IN = inputs()
SAME_KEY = [at for at, row in enumerate(IN) if row.key == IN[0].key]
OTHER_KEY = next(at for at, row in enumerate(IN) if row.partition == IN[0].partition and row.key != IN[0].key)


def test_right_outputs_pass() -> None:
    assert exact(COPY, IN, copies(IN), PARTITIONS) == []
    assert exact(COUNT, IN, counts(IN), PARTITIONS) == []
    assert exact(PAIRS, IN, pairs(IN), PARTITIONS) == []
    assert at_least_once(COPY, IN, copies(IN), PARTITIONS) == []
    assert at_least_once(COUNT, IN, counts(IN), PARTITIONS) == []


def test_a_lost_output_is_found_under_both_guarantees() -> None:
    gap = placed([row for at, row in enumerate(copies(IN)) if at != 7])
    assert kinds(exact(COPY, IN, gap, PARTITIONS)) == {"lost"}
    assert "lost" in kinds(at_least_once(COPY, IN, gap, PARTITIONS))


def test_a_lost_last_output_is_found() -> None:
    assert kinds(exact(COPY, IN, copies(IN)[:-1], PARTITIONS)) == {"lost"}


def test_one_of_several_outputs_of_an_input_that_is_lost_is_found() -> None:
    assert kinds(exact(PAIRS, IN, placed(pairs(IN)[:5] + pairs(IN)[6:]), PARTITIONS)) == {"lost"}


def test_a_duplicate_is_found_under_exactly_once() -> None:
    twice = copies(IN)
    assert "duplicate" in kinds(exact(COPY, IN, placed([*twice, twice[-1]]), PARTITIONS))


def test_a_duplicate_is_allowed_under_at_least_once() -> None:
    again = copies(IN)
    assert at_least_once(COPY, IN, placed(again[:20] + again[10:]), PARTITIONS) == []


def test_a_duplicate_whose_count_went_on_is_found() -> None:
    again = placed([*counts([*IN, IN[-1]])])
    assert "duplicate" in kinds(exact(COUNT, IN, again, PARTITIONS))


def test_two_swapped_outputs_of_one_key_are_found_under_both_guarantees() -> None:
    wrong = swapped(copies(IN), SAME_KEY[1], SAME_KEY[2])
    assert kinds(exact(COPY, IN, wrong, PARTITIONS)) == {"order"}
    assert kinds(at_least_once(COPY, IN, wrong, PARTITIONS)) == {"order"}


def test_two_swapped_outputs_of_one_input_are_found() -> None:
    assert kinds(exact(PAIRS, IN, swapped(pairs(IN), 0, 1), PARTITIONS)) == {"order"}


def test_two_swapped_keys_are_found_where_the_order_of_the_partition_is_promised() -> None:
    right = copies(IN)
    order = {Place("out", p): [o for r in right if r.partition == p and (o := origin_of(r))] for p in range(PARTITIONS)}
    wrong = swapped(right, 0, OTHER_KEY)
    assert exact(COPY, IN, wrong, PARTITIONS) == []
    assert in_order(right, order) == []
    assert kinds(in_order(wrong, order)) == {"order"}
    assert kinds(in_order(right[:-1], order)) == {"order"}


def test_a_record_that_nobody_sent_is_found() -> None:
    foreign = copies(IN)[0]._replace(headers=())
    beyond = copies(inputs(41))[-1]
    for row in (foreign, beyond):
        assert kinds(exact(COPY, IN, placed([*copies(IN), row]), PARTITIONS)) == {"unknown"}


def test_a_wrong_value_is_found() -> None:
    wrong = counts(IN)
    wrong[9] = wrong[9]._replace(value=wrong[10].value and b"\0" * 8)
    assert kinds(exact(COUNT, IN, wrong, PARTITIONS)) == {"wrong-value"}
    torn = copies(IN)
    torn[3] = torn[3]._replace(value=b"v999")
    assert kinds(at_least_once(COPY, IN, torn, PARTITIONS)) == {"wrong-value"}


def test_a_count_that_starts_again_is_found() -> None:
    lost_state = counts(IN[:20]) + counts(IN[20:])
    assert kinds(exact(COUNT, IN, placed(lost_state), PARTITIONS)) == {"wrong-value"}


def test_a_count_that_is_too_low_is_found_under_at_least_once_and_one_that_is_too_high_is_not() -> None:
    forgotten = counts(IN[:20]) + counts(IN[20:])
    assert kinds(at_least_once(COUNT, IN, placed(forgotten), PARTITIONS)) == {"too-low"}
    assert at_least_once(COUNT, IN, counts([*IN, *IN]), PARTITIONS) == []
    assert at_least_once(COUNT, IN, placed(forgotten), PARTITIONS, zombies=True) == []


def test_a_wrong_timestamp_is_found() -> None:
    wrong = copies(IN)
    wrong[3] = wrong[3]._replace(timestamp=5)
    assert kinds(exact(COPY, IN, wrong, PARTITIONS)) == {"wrong-timestamp"}


def test_a_wrong_key_is_found() -> None:
    wrong = copies(IN)
    wrong[3] = wrong[3]._replace(key=b"other")
    assert kinds(exact(COPY, IN, wrong, PARTITIONS)) == {"wrong-key"}


def test_a_record_in_the_wrong_partition_is_found() -> None:
    wrong = copies(IN)
    wrong[3] = wrong[3]._replace(partition=1 - wrong[3].partition)
    assert "misplaced" in kinds(exact(COPY, IN, placed(wrong), PARTITIONS))


def test_a_skipped_record_is_found_under_at_least_once_even_when_it_comes_later() -> None:
    again = copies(IN)
    late = placed([row for row in again if row is not again[SAME_KEY[2]]] + [again[SAME_KEY[2]]])
    assert "order" in kinds(at_least_once(COPY, IN, late, PARTITIONS))
    assert not at_least_once(replace(COPY, kept_back=True), IN, late, PARTITIONS)
    assert "order" in kinds(exact(replace(COPY, kept_back=True), IN, late, PARTITIONS))


def test_the_table_is_what_the_last_outputs_say() -> None:
    made = counts(IN)
    latest = {row.key: row.value for row in made}
    assert {key: entry.value for key, entry in table(COUNT, IN, made).items()} == latest
