"""The work `windows`: its input, what it expects of its outputs, and that its topologies give that. No broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import cli, main
from benchmarks.contenders import HERE, Contender, ours
from benchmarks.job import Job
from benchmarks.windows import GRACE_MS, KINDS, OTHER, SESSIONS, STREAM_JOIN, SUPPRESS, TABLE_JOIN, WINDOW_MS
from benchmarks.windows.app import topology
from benchmarks.windows.data import Input, Output, Outputs, last_of, value_of
from benchmarks.windows.work import Windows
from milestones import serdes
from milestones.testing import TopologyTestDriver

JOB = Job("b:1", "app", "exactly_once_v2", "in", "out", "state")


def given(kind: str, records: int = 1_500, keys: int = 40) -> Input:
    if kind == SUPPRESS:
        records += WINDOW_MS + GRACE_MS + 1_000  # two windows close
    return Input(kind, records, keys, 1, 1_700_000_040_000 - 700)


def found(data: Input) -> list[Output]:
    """What our topology makes of it."""
    read: dict[str, Any] = {"key": serdes.BYTES, "value": serdes.BYTES}
    job = Job(JOB.bootstrap_servers, "app", JOB.guarantee, "in", "out", "state", work=data.kind)
    with TopologyTestDriver(topology(job)) as driver:
        for is_other, key, number in data:
            driver.pipe("in" + OTHER * is_other, key, value_of(number), data.start_ms + number)
        return [(record.key, record.value) for record in driver.create_output_topic("out", **read).read_records()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_outputs_that_are_due_are_those_of_the_topology(kind: str) -> None:
    data = given(kind)
    assert found(data) == list(data.expected())


def test_a_minute_has_several_records_of_a_key_and_sessions_end() -> None:
    data = given(SESSIONS, 30_000, 10_000)
    outputs = list(data.expected())
    assert sum(value is None for _, value in outputs) > 5_000
    assert len({key[:-16] for key, _ in outputs}) < len({key[-8:] for key, value in outputs if value is not None})


Change = Callable[[list[Output]], list[Output]]
FAULTS: dict[str, Change] = {
    "lost": lambda outputs: outputs[1:],
    "twice": lambda outputs: [outputs[0], *outputs],
    "swapped": lambda outputs: [*outputs[:-2], outputs[-1], outputs[-2]],
    "wrong": lambda outputs: [(outputs[0][0], b"other"), *outputs[1:]],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_an_output_is_named_by_its_customer(kind: str, fault: str) -> None:
    data = given(kind, 100, 1)
    right = list(data.expected())
    due = Outputs(data, right)
    assert due.differences(Outputs(data, right)) == []
    (line,) = due.differences(Outputs(data, FAULTS[fault](right)))
    assert line.startswith("b'customer-000000'")
    many = Outputs(given(kind), given(kind).expected())
    assert many.differences(Outputs(data, ()))[-1] == "and 35 more"


def test_of_a_changelog_the_order_of_each_keys_records_counts_and_not_that_of_different_keys() -> None:
    data = given(SESSIONS, 3_000, 1)
    first, second = (b"a", b"1"), (b"b", b"2")
    due = Outputs(data, [first, second, (b"a", None)], by_key=True)
    assert due.differences(Outputs(data, [second, first, (b"a", None)], by_key=True)) == []
    assert due.differences(Outputs(data, [(b"a", None), first, second], by_key=True)) != []


def test_of_a_thin_changelog_the_last_record_of_each_key_counts() -> None:
    assert list(last_of([(b"b", b"1"), (b"a", b"1"), (b"b", None), (b"a", b"2"), (b"c", None)])) == [(b"a", b"2")]
    data = given(SESSIONS, 100, 1)
    due = Outputs(data, last_of(data.expected()))
    assert due.differences(Outputs(data, last_of(list(data.expected())[:-1]))) != []
    assert due.differences(Outputs(data, last_of(sorted(dict(data.expected()).items())))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_s_topics_have_all_records_and_their_times_differ_and_are_the_past_s(kind: str) -> None:
    work = Windows(None, Path(), kind, records=1_000, keys=50, seed=1)  # type: ignore[arg-type]
    rows = list(work.rows(2, "in"))
    assert {topic: sum(row[0] == topic for row in rows) for topic in {row[0] for row in rows}} == work.topics(2, "in")
    times = [row[4] for row in rows]
    assert times == list(range(times[0], times[0] + len(times)))
    assert (len(rows), times[0] % WINDOW_MS) == (2_000 + 50 * (kind == TABLE_JOIN), 0)
    assert times[-1] <= time.time() * 1000
    assert list(islice(work.rows(2, "in"), 5)) == list(islice(work.rows(2, "in"), 5))
    assert work.input(Contender("any", lambda job: [], times=4), "run") == f"windows-{kind}-input-4"


def test_a_contender_is_told_its_kind_and_an_unknown_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Windows(None, Path(), STREAM_JOIN, records=1_000, keys=50, seed=1)  # type: ignore[arg-type]
    job = Job("b:1", "app", "exactly_once_v2", "in", "out", "state", **work.asked)
    assert "work=stream-join" in ours("baseline", "windows").command(job)
    java = (HERE / "windows" / "Windows.java").read_text()
    assert all(f'case "{kind}" ->' in java for kind in KINDS)
    assert "windows" in cli.commands
    monkeypatch.setattr("sys.argv", ["benchmarks", "windows", "--kinds", "tumbling,cumulating"])
    assert main() == 2
