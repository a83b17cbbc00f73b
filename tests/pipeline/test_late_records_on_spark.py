"""What is late is late on Spark, too: whatever micro-batch a record comes in, each operator and store does with it what
one process does with all of them. On a real broker; each batch is an attempt without Spark, as a task makes it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from compat_tests.apps.times import expected, late_records, random_records, times
from compat_tests.harness.feed import Sent
from tests.pipeline.attempts_bench import AT_LEAST_ONCE, EXACTLY_ONCE, Bench, Make

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

INPUTS = 3
"""More of them were tried by hand."""


def yesterday() -> int:
    return int(time.time() * 1_000) - 86_400_000


def batches(b: Bench, some: Iterable[Sequence[Sent]]) -> list[tuple[bytes | None, bytes | None, int]]:
    """What is committed once these have come, each in a batch of its own."""
    for records in some:
        for sent in records:
            b.probe.write(b.input.topic, sent.value, key=sent.key, timestamp=sent.timestamp)
        done = b.attempt(b.range(b.probe.ends([b.input])[b.input]))
        assert done.records == len(records), done
    return [(one.key, one.value, one.timestamp) for one in b.probe.read(b.output, stable=True)]


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_window_that_closed_in_an_earlier_batch_is_closed(bench: Make, guarantee: str) -> None:
    some = late_records(yesterday())
    assert batches(bench(guarantee, program=times), some) == expected([sent for one in some for sent in one])


def test_no_batch_needs_what_an_earlier_one_has_left_on_the_disk(bench: Make, tmp_path: Path) -> None:
    b, found = bench(program=times), []
    some = late_records(yesterday())
    for number, records in enumerate(some):
        b.config = b.config.replace(state_dir=str(tmp_path / f"executor-{number}"))
        found = batches(b, [records])
    assert found == expected([sent for one in some for sent in one])


@pytest.mark.parametrize("seed", range(INPUTS))
def test_batches_of_any_size_write_what_one_process_writes(bench: Make, seed: int) -> None:
    chance = random.Random(seed)
    records = random_records(chance, yesterday())
    cuts = sorted({0, len(records), *chance.sample(range(1, len(records)), 5)})
    some = [records[first:last] for first, last in pairwise(cuts)]
    assert batches(bench(program=times), some) == expected(records)
