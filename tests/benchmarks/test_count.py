"""The benchmark `count`: what it feeds, what it expects, what it makes of a run."""

from __future__ import annotations

from itertools import islice

import orjson
import pytest

from benchmarks.count.app import add, nothing
from benchmarks.count.data import VALUE_BYTES, Data, Expected, Output
from benchmarks.count.work import figures
from benchmarks.errors import BenchmarkError
from benchmarks.process import Sample, Usage

DATA = Data(300, 5, 3)


def test_every_value_is_json_of_the_promised_size() -> None:
    for (key, amount), (same_key, value) in zip(Data(1000, 10, 1), Data(1000, 10, 1).values(), strict=True):
        assert len(value) == VALUE_BYTES
        assert (key, amount) == (same_key, orjson.loads(value)["amount"])


def test_a_longer_input_begins_with_the_shorter_one() -> None:
    assert list(islice(Data(500, 10, 7), 100)) == list(Data(100, 10, 7))


def outputs(data: Data) -> list[Output]:
    """What the topology makes of it, all in one partition."""
    rows, found = dict[bytes, dict[str, int]](), list[Output]()
    for key, value in data.values():
        rows[key] = add("", orjson.loads(value), rows.get(key, nothing()))
        found.append((key, orjson.dumps(rows[key]), 0))
    return found


def test_what_the_topology_adds_up_is_as_expected() -> None:
    assert Expected(DATA).differences(outputs(DATA)) == []


AMOUNTS = ((b"a", 5), (b"a", 7), (b"b", 1))
FIRST, SECOND = (b"a", b'{"count":1,"sum":5}', 0), (b"a", b'{"count":2,"sum":12}', 0)
OTHER = (b"b", b'{"sum":1,"count":1}', 1)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([FIRST, OTHER], "b'a': ends after 1 of 2"),
        ([FIRST, FIRST, SECOND, OTHER], "b'a': b'{\"count\":1,\"sum\":5}' where count 2, sum 12 was due"),
        ([SECOND, FIRST, OTHER], "b'a': b'{\"count\":2,\"sum\":12}' where count 1, sum 5 was due"),
        ([FIRST, (b"a", b'{"count":2,"sum":11}', 0), OTHER], "b'a': b'{\"count\":2,\"sum\":11}' where count 2, sum 12"),
        ([FIRST, (*SECOND[:2], 1), OTHER], "b'a': is in the partitions 0 and 1"),
        ([FIRST, SECOND, OTHER, OTHER], "b'b': b'{\"sum\":1,\"count\":1}' where nothing more was due"),
        ([FIRST, SECOND, OTHER, (b"c", b"", 0)], "b'c': b'' where nothing more was due"),
        ([FIRST, SECOND, (b"b", b"[]", 1)], "b'b': b'[]' where count 1, sum 1 was due"),
    ],
    ids=["lost", "duplicate", "swapped", "wrong", "misplaced", "surplus", "unknown key", "no JSON of ours"],
)
def test_each_fault_of_an_output_is_named(found: list[Output], said: str) -> None:
    (line,) = Expected(AMOUNTS).differences(found)
    assert line.startswith(said)


def test_a_lost_and_a_doubled_output_do_not_cancel_out() -> None:
    found = outputs(DATA)
    key = found[-1][0]
    of_key = [output for output in found if output[0] == key]
    found[found.index(of_key[1])] = of_key[0]
    assert len(Expected(DATA).differences(found)) == 1


def test_many_wrong_keys_are_summed_up() -> None:
    assert Expected(Data(1000, 10, 1)).differences([])[-1] == "and 5 more"


def usage() -> Usage:
    """A start-up of 3 CPU seconds, then half a CPU second per second from second 10 on."""
    return Usage([Sample(10.0, 3.0, 50.0), Sample(14.0, 5.0, 80.0), Sample(20.0, 8.0, 70.0)], total_cpu_s=8.5)


def test_rates_are_of_the_time_from_the_first_output_to_the_last() -> None:
    times_ms = [10_000, 12_000, 14_000, 15_000, 16_000]
    found = figures(times_ms, usage())
    assert found["records_per_s"] == pytest.approx(5 / 6)
    assert found["warm_records_per_s"] == pytest.approx(3 / 2)


def test_cpu_is_that_of_the_whole_process_and_of_its_warm_half() -> None:
    found = figures([10_000, 12_000, 14_000, 15_000, 16_000], usage())
    assert found["cpu_s_per_million"] == pytest.approx(8.5e6 / 5)
    assert found["warm_cpu_s_per_million"] == pytest.approx(1.0e6 / 3)
    assert found["rss_mb"] == 80.0


def test_too_few_records_are_an_error_not_a_rate() -> None:
    with pytest.raises(BenchmarkError, match="too few"):
        figures([10_000, 10_000, 10_000], usage())
