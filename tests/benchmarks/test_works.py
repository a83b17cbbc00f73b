"""Each benchmark's work: what it expects of its outputs, and what it makes of a run. Most need no broker."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from rich.console import Console

from benchmarks import reads
from benchmarks.blocking import work as blocking
from benchmarks.blocking.app import KINDS
from benchmarks.cluster import Cluster, leading
from benchmarks.contenders import Contender
from benchmarks.count import work as count
from benchmarks.count.app import add, nothing
from benchmarks.count.data import VALUE_BYTES, Data, Expected, Output
from benchmarks.errors import BenchmarkError
from benchmarks.fed import must_share
from benchmarks.idle.app import topology as idle_topology
from benchmarks.idle.work import Idle
from benchmarks.job import Job
from benchmarks.process import Sample, Usage, together
from benchmarks.spark import RESULT
from benchmarks.spark.work import NAMES, SHARES, OnSpark, contenders
from benchmarks.standbys.work import SHOWN, Moment, table
from milestones.common.state.stores.key_value_stores import KeyValueStore

USAGE = Usage([Sample(10.0, 3.0, 50.0), Sample(14.0, 5.0, 80.0), Sample(20.0, 8.0, 70.0)], total_cpu_s=8.5)
"""A start-up of 3 CPU seconds, then half a CPU second per second from second 10 on."""
JOB = Job("b:1", "app", "exactly_once_v2", "in", "out", "state")
DATA = Data(300, 5, 3)


def test_instances_that_run_together_have_used_what_each_of_them_has() -> None:
    later = Usage([Sample(12.0, 1.0, 40.0), Sample(16.0, 2.0, 60.0)], total_cpu_s=2.5, written_mb=3.0)
    both = together([USAGE, later])
    assert (both.total_cpu_s, both.written_mb) == (11.0, 3.0)
    assert both.cpu_s_between(12, 16) == USAGE.cpu_s_between(12, 16) + 1.0
    assert both.peak_rss_mb == 80.0 + 60.0
    assert together([USAGE]) is USAGE


def test_a_run_of_which_an_instance_had_next_to_no_work_does_not_count() -> None:
    idle = Usage([Sample(10.0, 3.0, 50.0), Sample(20.0, 3.1, 50.0)], total_cpu_s=3.2)
    must_share([USAGE, USAGE])
    with pytest.raises(BenchmarkError, match="CPU s in the second half: one had next to no work; give more records"):
        must_share([USAGE, idle])


def rows(records: int, seed: int = 1) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    work = blocking.Blocking(None, Path(), records, threads=8, work="call", seed=seed)  # type: ignore[arg-type]
    return ((partition, key, value) for _, partition, key, value, *_ in work.rows(1, "in"))


def test_blocking_feeds_each_partition_as_many_records_by_seed_and_expects_each_in_its_order() -> None:
    from benchmarks.cli import cli

    found = list(rows(330))
    assert found == list(rows(330)) != list(rows(330, seed=2))
    wanted = blocking.expected(320, 16)
    for partition, key, value in found:
        assert key == blocking.key_of(partition)
        assert wanted[key].pop(0) == value + b"!"  # type: ignore[operator]
    assert not any(wanted.values())
    (choice,) = [option for option in cli.commands["blocking"].params if option.name == "work"]
    assert set(choice.type.choices) == KINDS.keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([b"0!", b"2!"], []),
        ([b"0!"], ["b'partition-0': 1 outputs of 2, right up to number 1"]),
        ([b"2!", b"0!"], ["b'partition-0': 2 outputs of 2, right up to number 0"]),
        ([b"0!", b"2!", b"2!"], ["b'partition-0': 3 outputs of 2, right up to number 2"]),
    ],
    ids=["right", "lost", "disordered", "repeated"],
)
def test_blocking_names_each_fault_of_its_outputs(found: list[bytes], said: list[str]) -> None:
    key = blocking.key_of(0)
    assert blocking.differences({key: [b"0!", b"2!"]}, {key: found}) == said


def test_rates_are_of_the_time_from_the_first_output_to_the_last_and_too_few_are_an_error() -> None:
    found = blocking.figures([12_000, 10_000, 14_000, 11_000], USAGE)
    assert found["records_per_s"] == pytest.approx(1.0)
    written = [(at_ms, 1) for at_ms in (10_000, 12_000, 14_000, 15_000, 16_000)]
    found = count.figures(written, USAGE)
    assert (found["records_per_s"], found["warm_records_per_s"]) == (pytest.approx(5 / 6), pytest.approx(3 / 2))
    assert found["cpu_s_per_million"] == pytest.approx(8.5e6 / 5)
    assert found["warm_cpu_s_per_million"] == pytest.approx(1.0e6 / 3)
    assert found["rss_mb"] == 80.0
    for of_one in (lambda: blocking.figures([10_000], USAGE), lambda: count.figures([(10_000, 1)], USAGE)):
        with pytest.raises(BenchmarkError, match="too few"):
            of_one()


def test_a_rate_is_of_the_records_that_outputs_stand_for_where_some_are_left_out() -> None:
    found = count.figures([(10_000, 5), (12_000, 1), (14_000, 2), (15_000, 10), (16_000, 3)], USAGE)
    assert (found["records"], found["records_per_s"]) == (21, pytest.approx(21 / 6))
    assert found["warm_records_per_s"] == pytest.approx(15 / 2)


def outputs(data: Data) -> list[Output]:
    """What the topology of `count` makes of it, all in one partition."""
    rows, found = dict[bytes, dict[str, int]](), list[Output]()
    for key, value in data.values():
        rows[key] = add("", orjson.loads(value), rows.get(key, nothing()))
        found.append((key, orjson.dumps(rows[key]), 0))
    return found


def test_count_feeds_the_same_json_by_seed_and_expects_what_its_topology_adds_up() -> None:
    assert list(islice(Data(500, 10, 7), 100)) == list(Data(100, 10, 7))
    for (key, amount), (same_key, value) in zip(DATA, DATA.values(), strict=True):
        assert (key, amount, len(value)) == (same_key, orjson.loads(value)["amount"], VALUE_BYTES)
    found = outputs(DATA)
    assert Expected(DATA).differences(found) == []
    assert Expected(Data(1000, 10, 1)).differences([])[-1] == "and 5 more"
    of_key = [output for output in found if output[0] == found[-1][0]]
    found[found.index(of_key[1])] = of_key[0]
    assert len(Expected(DATA).differences(found)) == 1, "a lost and a doubled one don't cancel out"


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
def test_count_names_each_fault_of_an_output(found: list[Output], said: str) -> None:
    (line,) = Expected(((b"a", 5), (b"a", 7), (b"b", 1))).differences(found)
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([SECOND, OTHER], None),
        ([FIRST, SECOND, OTHER], None),
        ([FIRST, OTHER], "b'a': ends after 1 of 2"),
        ([SECOND, SECOND, OTHER], "b'a': b'{\"count\":2,\"sum\":12}' where nothing more was due"),
        ([SECOND, FIRST, OTHER], "b'a': b'{\"count\":1,\"sum\":5}' where nothing more was due"),
        ([(b"a", b'{"count":2,"sum":5}', 0), OTHER], "b'a': b'{\"count\":2,\"sum\":5}' where count 2, sum 12"),
        ([(b"a", b'{"count":3,"sum":12}', 0), OTHER], "b'a': b'{\"count\":3,\"sum\":12}' where nothing more was due"),
    ],
    ids=["first left out", "none left out", "last one lost", "duplicate", "swapped", "wrong", "surplus"],
)
def test_count_names_each_fault_of_a_thin_topic_which_may_leave_out_all_but_the_last(
    found: list[Output], said: str | None
) -> None:
    lines = Expected(((b"a", 5), (b"a", 7), (b"b", 1))).differences(found, thin=True)
    assert len(lines) == (said is not None)
    assert all(line.startswith(said or "") for line in lines)


def test_what_is_produced_is_the_size_of_the_logs_of_a_run_s_own_topics(tmp_path: Path) -> None:
    written = {
        "count-1-output-0/0.log": 30, "count-1-totals-changelog-3/0.log": 20, "count-1-output-0/0.index": 7,
        "count-11-output-0/0.log": 5, "input-1-0/0.log": 9,
    }  # fmt: skip
    for segment, size in written.items():
        (tmp_path / segment).parent.mkdir(exist_ok=True)
        (tmp_path / segment).write_bytes(b"x" * size)
    assert Cluster("localhost:1", tmp_path).bytes_of("count-1-") == 50


def test_count_is_told_its_commit_interval() -> None:
    work = count.Count(None, Path(), 1_000, 10, 1, commit_interval_ms=100)  # type: ignore[arg-type]
    assert work.asked == {"commit_interval_ms": "100"}
    assert work.title == "1,000 records, 10 keys, a commit every 100 ms"


class FakeCluster:
    bootstrap_servers = "b:1"

    def create(self, *_: Any) -> None: ...

    def delete(self, prefix: str) -> None: ...


def on_spark(directory: Path, records: int, code: int = 0, said: bool = True) -> Any:
    """The figures of a contender that says that it has processed so many records."""
    text = f"noise\n{RESULT}{json.dumps({'records': records, 'seconds': 4, 'cpu_s': 2})}\n" * said
    program = f"import sys; sys.stdout.write({text!r}); sys.exit({code})"
    directory = Path(tempfile.mkdtemp(dir=directory))
    contender = Contender("groupby-count", lambda job: [sys.executable, "-c", program])
    return OnSpark(FakeCluster(), directory, 1_000, 10, 1).measure(contender, "exactly_once_v2")  # type: ignore[arg-type]


def test_spark_counts_runs_that_processed_all_only_and_its_contenders_get_the_whole_job(tmp_path: Path) -> None:
    for one in contenders(NAMES):
        assert list(one.command(JOB)) == [sys.executable, "-m", "benchmarks.spark.app", one.name, *JOB.arguments()]
    with pytest.raises(BenchmarkError, match=r"'flink', only milestones-batch"):
        contenders(["flink"])
    assert SHARES.keys() <= set(NAMES)
    assert [one.name for one in contenders(NAMES) if not one.peer] == ["milestones-batch", "milestones-micro"]
    figures = on_spark(tmp_path, 1_000)
    assert (figures["records_per_s"], figures["cpu_s_per_million"]) == (250, 2_000)
    with pytest.raises(BenchmarkError, match="999"):
        on_spark(tmp_path, 999)
    for code, said in ((0, False), (3, True)):
        with pytest.raises(BenchmarkError, match=f"exit code {code}"):
            on_spark(tmp_path, 1_000, code, said)


def shown(*moments: Moment) -> list[list[str]]:
    out = StringIO()
    Console(file=out, width=120).print(table("standbys", {"m1": {"one": moments}}))
    return [line.split() for line in out.getvalue().splitlines() if "one" in line]


def test_standbys_shows_the_first_and_the_last_moment_and_some_between_that_differ() -> None:
    found = shown(*(Moment(number / 10, 1_000 - number, 500 - number) for number in range(100)))
    assert len(found) == SHOWN
    assert (found[0], found[-1]) == (["m1", "one", "0.0", "1,000", "500"], ["m1", "one", "9.9", "901", "401"])
    assert [row[2] for row in shown(Moment(0.0, 9, 5), Moment(0.1, 9, 5), Moment(0.2, 4, 5))] == ["0.0", "0.2"]


def test_some_of_the_tasks_have_a_store() -> None:
    job = Job("localhost:1", "idle", "exactly_once_v2", "input", "output", "state")
    subs = {next(iter(sub.source_topics)): len(sub.stores) for sub in idle_topology(job).resolve("idle")}
    assert subs == {"input-plain": 0, "input-stateful": 1}
    work = Idle(None, Path(), tasks=512, seconds=20, seed=1)  # type: ignore[arg-type]
    assert work.title == "512 tasks, 64 of them with a store, no input, 20 s"


def test_a_topic_is_known_by_the_leaders_of_its_partitions() -> None:
    topic = SimpleNamespace(partitions={number: SimpleNamespace(leader=number - 1) for number in range(3)})
    assert (leading(None), leading(topic)) == ([], [1, 2])


def test_what_was_used_before_it_was_settled_does_not_count() -> None:
    usage = Usage([Sample(0.0, 5.0, 50.0), Sample(10.0, 6.0, 70.0), Sample(30.0, 8.0, 60.0)], total_cpu_s=9.0)
    work = Idle(None, Path(), tasks=512, seconds=20, seed=1)  # type: ignore[arg-type]
    assert work._figures(usage, 10.0) == {"cpu_s_per_s": pytest.approx(0.1), "rss_mb": 70.0}


def test_reads_measures_every_read_and_refuses_too_few_rows_and_wrong_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(rows: int = reads.MIN_ROWS) -> dict[str, reads.Rows]:
        return reads.measure(["memory"], tmp_path, rows, 1, 1, lambda _: None)

    found = measured()
    assert list(found["memory"]) == [read.name for read in reads.READS]
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in found["memory"].values())
    assert reads.table("reads", found).row_count == len(reads.READS)
    with pytest.raises(BenchmarkError, match="at least 200,000"):
        measured(1_000)
    whole = KeyValueStore.prefix_scan

    def short(self: KeyValueStore, *args: Any) -> Any:
        rows = whole(self, *args)
        next(rows)
        return rows

    monkeypatch.setattr(KeyValueStore, "prefix_scan", short)
    with pytest.raises(BenchmarkError, match="prefix_scan of 1,000 gave 19980 rows in 20 calls instead of 20000"):
        measured()
