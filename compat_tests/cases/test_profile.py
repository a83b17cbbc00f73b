"""What each node costs, told by a run whose nodes are timed, on each stage (`milestones run --profile`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.cases.flows import BY_VALUE_REPARTITION, COUNT_BY_VALUE
from compat_tests.harness.judge import end_and_judge
from compat_tests.harness.world import World

RECORDS = 2_000


def calls(log: str, row: str) -> int:
    """The calls in the table's row of that name."""
    found = re.search(rf"^ +{re.escape(row)} +([\d,]+) ", log, re.MULTILINE)
    assert found is not None, f"no row {row!r} in\n{log}"
    return int(found[1].replace(",", ""))


@pytest.mark.short_under("exactly_once_v2")
def test_a_profile_counts_each_record_at_each_node_and_changes_nothing_else(world: World, tmp_path: Path) -> None:
    stacks = tmp_path / "stacks"
    feed = world.input("in", 2, out=2)
    app = world.instance("count-by-value").start(profile=stacks)
    feed.send(world.groups(RECORDS, keys=100, groups=50))
    end_and_judge(world, COUNT_BY_VALUE, repartitions=[BY_VALUE_REPARTITION])
    log = app.log()
    for row in ("KSTREAM-SOURCE-0000000000", "by-value-repartition-filter", "by-value-repartition-sink"):
        assert calls(log, row) == RECORDS
    assert calls(log, "counts: put") == calls(log, "by-value-repartition-source") == RECORDS
    assert "StreamThread-1" in log or "PollingThread" in log
    assert [line for line in stacks.read_text().splitlines() if "KSTREAM-AGGREGATE" in line]
