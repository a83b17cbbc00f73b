"""What the inputs of a random case hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compat_tests.oracles.placement import partition_of
from compat_tests.random_topologies.cases import random_case
from compat_tests.random_topologies.inputs import Inputs
from compat_tests.random_topologies.plans import Path, Plan
from compat_tests.random_topologies.shapes import COUNT, Windows

CLOSING = Windows("tumbling", 10, on_close=True)


@pytest.mark.parametrize("partitions", range(1, 6))
@pytest.mark.parametrize("again", [False, True])
def test_the_last_records_reach_each_partition_by_key_and_by_value(partitions: int, again: bool) -> None:
    path = Path((), COUNT, again=partitions if again else 0, windows=CLOSING)
    plan = Plan((path,), (1 if again else partitions,))
    rows = Inputs(replace(random_case(1, "exactly_once_v2"), plan=plan)).last()["in0"]
    for parts in ([row.key for row in rows], [row.value for row in rows]):
        assert {partition_of(part or b"", partitions) for part in parts} == set(range(partitions))
