"""The benchmark `blocking`: what it expects, what it makes of a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.blocking.app import KINDS
from benchmarks.blocking.work import Blocking, differences, expected, figures, key_of
from benchmarks.errors import BenchmarkError
from benchmarks.process import Sample, Usage

USAGE = Usage([Sample(10.0, 3.0, 50.0), Sample(20.0, 8.0, 70.0)], total_cpu_s=1.0)


def rows(records: int, seed: int = 1) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    work = Blocking(None, Path(), records, threads=8, work="call", seed=seed)  # type: ignore[arg-type]
    return ((partition, key, value) for _, partition, key, value, *_ in work.rows(1, "in"))


def test_every_partition_gets_as_many_records_of_a_key_of_its_own() -> None:
    found = list(rows(330))
    assert len(found) == 320
    assert {(partition, key) for partition, key, _ in found} == {(at, key_of(at)) for at in range(16)}
    assert len({value for *_, value in found}) == 320


def test_the_order_is_by_seed() -> None:
    assert list(islice(rows(160), 20)) == list(islice(rows(160), 20))
    assert list(islice(rows(160), 20)) != list(islice(rows(160, seed=2), 20))


def test_what_is_expected_is_each_input_in_its_order() -> None:
    wanted = expected(320, 16)
    for partition, key, value in rows(320):
        assert key == key_of(partition)
        assert wanted[key].pop(0) == value + b"!"  # type: ignore[operator]
    assert not any(wanted.values())


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([b"0!", b"2!"], []),
        ([b"0!"], ["b'partition-0': 1 outputs of 2, right up to number 1"]),
        ([b"2!", b"0!"], ["b'partition-0': 2 outputs of 2, right up to number 0"]),
        ([b"0!", b"2!", b"2!"], ["b'partition-0': 3 outputs of 2, right up to number 2"]),
    ],
)
def test_lost_repeated_and_disordered_outputs_are_named(found: list[bytes], said: list[str]) -> None:
    wanted = {key_of(0): [b"0!", b"2!"]}
    assert differences(wanted, {key_of(0): found}) == said


def test_the_rate_is_of_the_time_from_the_first_output_to_the_last() -> None:
    found = figures([12_000, 10_000, 14_000, 11_000], USAGE)
    assert found["records_per_s"] == pytest.approx(1.0)
    assert found["cpu_ms_per_record"] == pytest.approx(250.0)
    with pytest.raises(BenchmarkError, match="too few"):
        figures([10_000], USAGE)


def test_there_is_a_kind_of_work_for_each_choice_of_the_command() -> None:
    from benchmarks.cli import cli

    (choice,) = [option for option in cli.commands["blocking"].params if option.name == "work"]
    assert set(choice.type.choices) == KINDS.keys()  # type: ignore[attr-defined]
