"""The work `commits`: its input, what it expects of its outputs, and what it makes of times. No broker."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.cli import main
from benchmarks.commits import STORE, TIMES, app, times
from benchmarks.commits.data import LONG, VALUE, Input, Output
from benchmarks.commits.pauses import Window, committed_per_s, figures, with_input
from benchmarks.commits.work import ANSWERED, Commits, growth_mb, late
from benchmarks.contenders import HERE
from benchmarks.errors import BenchmarkError
from benchmarks.job import GUARANTEES, Job
from benchmarks.process import Sample
from compat_tests.network.frames import Api
from milestones import serdes
from milestones.testing import TopologyTestDriver

JOB = Job("b:1", "app", "exactly_once_v2", "in", "out", "state")
DATA = Input(2, records=60, keys=6, seed=3)
ALL = {0: 30, 1: 30}
MS = 1_000_000


def outputs(committed: dict[int, int]) -> list[Output]:
    """What our topology makes of so many records of each partition."""
    keys = [(partition, key) for partition, count in committed.items() for key in DATA.keys(partition, count)]
    with TopologyTestDriver(app.topology(JOB)) as driver:
        for _, key in keys:
            driver.pipe("in", key, VALUE, 1)
        records = driver.create_output_topic("out", key=serdes.BYTES, value=serdes.BYTES).read_records()
    return [(partition, key, record.value) for (partition, key), record in zip(keys, records, strict=True)]


def test_each_partition_has_as_many_records_by_seed_in_their_order() -> None:
    found = list(DATA)
    assert found == list(Input(2, 60, 6, 3)) != list(Input(2, 60, 6, 4))
    assert Counter(partition for partition, _ in found) == {0: 30, 1: 30}
    for partition in ALL:
        assert list(DATA.keys(partition, 30)) == [key for at, key in found if at == partition]
        assert len(set(DATA.keys(partition, 30))) == 3


def test_what_the_topology_makes_of_the_committed_records_is_what_is_due() -> None:
    for committed in (ALL, {0: 17, 1: 0}):
        assert DATA.differences(committed, outputs(committed)) == []
        assert DATA.differences(committed, outputs(committed), thin=True) == []
    assert len(DATA.differences({0: 30, 1: 29}, outputs(ALL))) == 1


Change = Callable[[list[Output]], list[Output]]
FAULTS: dict[str, Change] = {
    "lost": lambda found: found[1:],
    "last one lost": lambda found: found[:-1],
    "twice": lambda found: [*found[:3], found[2], *found[3:]],
    "swapped": lambda found: [found[0], *found[:0:-1]],
    "wrong": lambda found: [*found[:-1], (*found[-1][:2], LONG.pack(999))],
    "of another partition": lambda found: [*found, (1, found[0][1], LONG.pack(1))],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_an_output_is_named_by_its_partition(fault: str) -> None:
    committed = {0: 30, 1: 0}
    (line,) = DATA.differences(committed, FAULTS[fault](outputs(committed)))
    assert line.startswith("partition ")


def last_ones(found: list[Output]) -> list[Output]:
    return [one for at, one in enumerate(found) if one[:2] not in {other[:2] for other in found[at + 1 :]}]


@pytest.mark.parametrize("fault", ["last one lost", "twice", "wrong", "of another partition"])
def test_a_thin_topic_may_leave_counts_out_but_not_a_key_s_last_one(fault: str) -> None:
    committed = {0: 30, 1: 0}
    thin = last_ones(outputs(committed))
    assert 0 < len(thin) < 30
    assert DATA.differences(committed, thin, thin=True) == []
    (line,) = DATA.differences(committed, FAULTS[fault](thin), thin=True)
    assert line.startswith("partition ")


def test_times_are_read_as_they_were_written_those_of_a_task_made_anew_with_the_former_ones(tmp_path: Path) -> None:
    path = tmp_path / ("state" + TIMES)
    times.write(path, [(1, array("q", [3, 9])), (0, array("q", [2**40, 2**41])), (1, array("q", [5])), (2, array("q"))])
    assert path.read_bytes()[:16] == b"\0\0\0\1\0\0\0\2" + LONG.pack(3)
    assert {partition: list(found) for partition, found in times.read(path).items()} == {
        0: [2**40, 2**41], 1: [3, 5, 9], 2: [],
    }  # fmt: skip
    for size in (3, 20):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ValueError, match="ends"):
            times.read(path)


def test_a_contender_notes_each_record_with_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[tuple[int, "array[int]"]]()
    monkeypatch.setattr(app, "_kept", kept)
    outputs({0: 10, 1: 0})
    (noted,) = [(partition, list(at)) for partition, at in kept if at]
    assert noted == (0, sorted(noted[1]))
    assert len(noted[1]) == 10
    java = (HERE / "commits" / "Commits.java").read_text()
    assert f'"{TIMES}"' in java
    assert f'"{STORE}"' in java


def test_a_pause_is_the_longest_time_without_a_record_of_all_tasks_and_of_one() -> None:
    found = figures(
        Window(100 * MS, 1100 * MS),
        {
            0: [10 * MS, 120 * MS, 300 * MS, 1090 * MS, 1500 * MS],
            1: [150 * MS, 310 * MS, 370 * MS, 400 * MS, 1095 * MS],
        },
    )
    assert found["processed_per_s"] == 8
    assert (found["pause_ms"], found["task_pause_ms"]) == (690, 790)
    assert found["standing"] == pytest.approx(100 * (150 + 60 + 690) / 1000), "and 20, 30, 10, 30, 5, 5 were short"


def test_a_task_that_stands_from_the_beginning_to_the_end_has_that_as_its_pause() -> None:
    found = figures(Window(0, 400 * MS), {0: [500 * MS], 1: []})
    assert (found["pause_ms"], found["standing"], found["processed_per_s"]) == (400, 100, 0)


def test_the_window_ends_when_a_task_has_no_input_left_and_half_of_it_is_the_least() -> None:
    window, at = Window(0, 100), {0: [10, 60], 1: [20, 90, 150]}
    assert with_input(window, at, {0: 1, 1: 3}, each=4) == window
    assert with_input(window, at, {0: 2, 1: 3}, each=2) == Window(0, 60)
    for too_short, fault in (({0: [10, 40], 1: [20]}, "give more records"), ({1: [20]}, r"partitions \[0\]")):
        with pytest.raises(BenchmarkError, match=fault):
            with_input(window, too_short, {0: 2, 1: 1}, each=2)


def test_committed_records_count_from_the_first_commit_seen_to_the_last_one() -> None:
    looks = [(0, 50), (500 * MS, 100), (800 * MS, 100), (1_500 * MS, 200), (2_500 * MS, 300), (2_900 * MS, 300)]
    assert committed_per_s(Window(0, 3_000 * MS), looks) == 100
    with pytest.raises(BenchmarkError, match="1 commits are too few"):
        committed_per_s(Window(0, 1_000 * MS), looks)


def test_answers_to_what_ends_a_commit_are_late_until_the_block_ends() -> None:
    assert ANSWERED.keys() == set(GUARANTEES)
    asked = list[tuple[float, int]]()
    fault = SimpleNamespace(ended=False, end=lambda: setattr(fault, "ended", True))
    proxy = SimpleNamespace(delay=lambda seconds, api: asked.append((seconds, api)) or fault)
    with late(proxy, "exactly_once_v2", 300) as answers:  # type: ignore[arg-type]
        assert (answers, fault.ended) == (fault, False)
    assert (asked, fault.ended) == ([(0.3, Api.END_TXN)], True)


def test_memory_grows_by_what_the_samples_between_two_times_say() -> None:
    samples = [Sample(at, 0.0, rss) for at, rss in ((1.0, 50.0), (2.0, 60.0), (3.0, 90.0), (4.0, 80.0), (5.0, 300.0))]
    assert (growth_mb(samples, 1.5, 4.5), growth_mb(samples, 8, 9)) == (20.0, 0.0)


@pytest.mark.parametrize("numbers", ["", "-1", "300,300", "1,x"])
def test_answers_are_late_by_different_numbers_from_0_on(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "commits", "--late", numbers])
    assert main() == 2


def test_its_backlog_lies_in_each_task_s_partition() -> None:
    work = Commits(None, Path(), 400, 8, 4, seconds=5, warm=1, seed=1, commit_interval_ms=100)  # type: ignore[arg-type]
    assert Counter(partition for _, partition, *_ in work.rows()) == dict.fromkeys(range(4), 100)
    assert work.asked == {"commit_interval_ms": "100"}
