"""Input at an even pace: where it goes, and what its outputs say of latency; the works that use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.job import Job
from benchmarks.last.app import topology
from benchmarks.latency.work import Latency
from benchmarks.paced import keys_of, latencies, percentile
from benchmarks.skew.work import HOT, Skew
from milestones.common.partitioner import partition_of
from milestones.testing import TopologyTestDriver


def test_each_partition_has_keys_of_its_own_by_the_partitioner() -> None:
    found = keys_of(16, 10)
    assert [len(keys) for keys in found] == 16 * [10]
    assert all(partition_of(key, 16) == partition for partition, keys in enumerate(found) for key in keys)


def test_a_latency_is_from_an_inputs_making_to_its_output_of_inputs_that_were_made_in_time() -> None:
    given = [10.0, 11.0, 12.0, 13.0]
    seen = {0: [10.9], 1: [11.3], 2: [12.1], 3: [13.5]}
    assert latencies(given, seen, 11.0, 13.0) == pytest.approx([100, 300])
    with pytest.raises(BenchmarkError, match="no input was made while it was measured"):
        latencies(given, seen, 20.0, 30.0)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({0: [10.1]}, "1 of 2 inputs have an output, 0 of them"),
        ({0: [10.1], 1: [11.1, 11.2]}, "2 of 2 inputs have an output, 1 of them more than one"),
        ({0: [10.1], 1: [11.1], 7: [11.1]}, "3 of 2 inputs"),
    ],
    ids=["lost", "repeated", "unknown"],
)
def test_latencies_count_only_when_each_input_has_its_output_once(seen: dict[int, list[float]], said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        latencies([10.0, 11.0], seen, 0.0, 20.0)


def test_a_percentile_is_the_least_value_that_such_a_share_does_not_exceed() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, share) for share in (50, 99, 99.9)] == [50, 99, 100]
    assert percentile([5.0], 99.9) == 5


def test_the_process_is_in_step_once_less_than_a_seconds_input_waits() -> None:
    work = Latency(None, Path(), rate=100, seconds=5, warm=1, seed=1)  # type: ignore[arg-type]
    assert not work._in_step(given=0, seen=0)
    assert not work._in_step(given=200, seen=100)
    assert work._in_step(given=200, seen=101)


def test_the_backlog_of_skew_lies_in_one_partition_and_its_keys_belong_there() -> None:
    work = Skew(None, Path(), records=1_500, rate=100, seed=1)  # type: ignore[arg-type]
    rows = list(work.backlog("in"))
    assert len(rows) == 1_500
    assert {partition for _, partition, *_ in rows} == {HOT}
    assert {partition_of(key or b"", work.partitions) for _, _, key, *_ in rows} == {HOT}
    assert work.title == "1,500 records in one partition, 100 records/s in each of 15"


def test_the_program_keeps_the_last_value_of_a_key_and_puts_each_out() -> None:
    job = Job("b:1", "app", "exactly_once_v2", "in", "out", "state")
    with TopologyTestDriver(topology(job)) as driver:
        for value in (b"1", b"2"):
            driver.pipe("in", b"key", value, 1)
        assert [(one.key, one.value) for one in driver.unread("out")] == [(b"key", b"1"), (b"key", b"2")]
        assert driver.store("last").get("key").value == b"2"
