"""The benchmark `count`: what it feeds, what it expects, what it makes of a run."""

from __future__ import annotations

from itertools import islice

import orjson
import pytest

from benchmarks.count.app import add, nothing
from benchmarks.count.data import VALUE_BYTES, Data, Total, differences
from benchmarks.count.work import figures
from benchmarks.errors import BenchmarkError
from benchmarks.process import Sample, Usage


def test_every_value_is_json_of_the_promised_size() -> None:
    for (key, amount), (same_key, value) in zip(Data(1000, 10, 1), Data(1000, 10, 1).values(), strict=True):
        assert len(value) == VALUE_BYTES
        assert (key, amount) == (same_key, orjson.loads(value)["amount"])


def test_a_longer_input_begins_with_the_shorter_one() -> None:
    assert list(islice(Data(500, 10, 7), 100)) == list(Data(100, 10, 7))


def test_the_expected_totals_are_what_the_topology_adds_up() -> None:
    data, rows = Data(300, 5, 3), dict[bytes, dict[str, int]]()
    for key, value in data.values():
        rows[key] = add("", orjson.loads(value), rows.get(key, nothing()))
    assert data.totals() == {key: Total.of(orjson.dumps(row)) for key, row in rows.items()}


def test_a_wrong_a_missing_and_an_unexpected_total_are_named() -> None:
    expected = {b"a": Total(1, 1), b"b": Total(2, 2), b"c": Total(3, 3)}
    found = {b"a": Total(1, 1), b"b": Total(2, 9), b"d": Total(1, 1)}
    assert [line[:4] for line in differences(expected, found)] == ["b'b'", "b'c'", "b'd'"]
    assert differences(expected, expected) == []


def test_many_wrong_totals_are_summed_up() -> None:
    expected = {b"%d" % key: Total(1, 1) for key in range(10)}
    assert differences(expected, {})[-1] == "and 5 more"


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
