"""The bench against Java: a few cases of a few topologies, and what its comparison tells apart. `python -m
compat_tests.java` runs the whole of it; planted mistakes are in `test_java_mistakes.py`."""

from __future__ import annotations

import argparse
import io
import json
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from compat_tests.java import __main__ as command
from compat_tests.java import plan_program
from compat_tests.java.bench import ABSENT, DECLARED, DIFFERS, EQUAL, absent, check, text_difference
from compat_tests.java.cases import TEXT, Advance, Case, Outcome, Pipe, Row, shown
from compat_tests.java.comparing import DifferenceError, difference, last_rows
from compat_tests.java.declared import DECLARED as DECLARED_TABLE
from compat_tests.java.declared import EQUAL_TIMES, Declared, declared_for
from compat_tests.java.jvm import BenchError, Java
from compat_tests.java.ours import Ours
from compat_tests.java.plan_program import entry_of
from compat_tests.java.plans import random_plan, random_plan_of, text_of
from compat_tests.java.registry import Entry, Registry
from compat_tests.java.topologies import ALL
from milestones.common.kafka.embedded.errors import JarsError, JavaNotFoundError
from milestones.common.topology import StreamsBuilder, Topology
from tests.sources import ROOT

SEED = 7
ROW = Row(b"a", b"1", 5, (("h", b"x"),))
STEPS: Case = (Pipe("in", b"a", b"1", 5), Advance(10))


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """One JVM for all tests of this file."""
    try:
        running = Java()
    except (JavaNotFoundError, JarsError) as error:
        pytest.skip(f"Java or Kafka Streams' jars can't be had here: {error}")
    with running:
        yield running


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Without the warnings of hundreds of tasks that skip records."""
    caplog.set_level(logging.ERROR, "milestones")


def outcome(*rows: Row, topic: str = "out", error: str | None = None) -> Outcome:
    """One of a case of one step."""
    return Outcome([{}, {topic: list(rows)} if rows else {}], error)


def test_a_plan_is_that_of_its_seed_and_can_be_built() -> None:
    plans = [random_plan(random.Random(seed)) for seed in range(100)]
    assert plans == [random_plan(random.Random(seed)) for seed in range(100)]
    used = {op["op"] for plan in plans for op in json.loads(plan)["ops"]}
    assert used == set(plan_program._OPERATIONS)
    for plan in plans:
        entry = entry_of(plan)
        assert str(entry.build().describe()) == str(entry.build().describe())


# -- with a JVM


@pytest.mark.java
@pytest.mark.timeout(600)  # the first time the jars are downloaded
def test_every_topology_that_is_here_stands_in_java_and_has_the_same_text(java: Java) -> None:
    ours = Ours(ALL)
    assert set(ALL) <= set(java.names())
    assert [text_difference(name, ours, java) for name in ALL] == [None] * len(ALL)


@pytest.mark.java
def test_java_can_describe_what_is_not_here_yet(java: Java) -> None:
    for name in java.names():
        assert java.describe(name).startswith("Topologies:")


@pytest.mark.java
def test_java_describes_an_optimised_topology(java: Java) -> None:
    assert "in-STATE-STORE" in java.describe("table_group_by_count")
    assert java.describe("join_streams_self", "all") != java.describe("join_streams_self")


@pytest.mark.java
@pytest.mark.parametrize(
    "name", ["counts_regrouped", "group_by_aggregate", "process", "records_changed"]
)
def test_both_write_the_same_records_and_rows(java: Java, name: str) -> None:
    line = check(ALL[name], Ours(ALL), java, 6, SEED)
    assert (line.result, line.why, line.compared.examples) == (EQUAL, "", 6)
    assert line.compared.records > 40
    assert line.compared.rows > 10


@pytest.mark.java
def test_random_plans_write_the_same_records(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Java", lambda: java)
    monkeypatch.setattr(java, "close", lambda: None)
    lines = command.run_plans(8, 2, SEED, Console(file=io.StringIO()))
    assert [line.why for line in lines if line.result not in (EQUAL, DECLARED)] == []
    assert sum(line.compared.records for line in lines) > 200
    assert command.told(lines).startswith("8 plans, 16 examples, ")


@pytest.mark.java
def test_a_plan_that_differs_is_told(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = text_of({"ops": [{"op": "stream", "topic": "in"}, {"op": "map_values", "of": 0, "f": "loud"},
                            {"op": "to", "of": 1, "topic": "out"}], "settings": {}})  # fmt: skip
    entry = entry_of(plan)
    assert check(entry, Ours({plan: entry}), java, 5, SEED, [0]).result == EQUAL
    monkeypatch.setitem(plan_program._MAPPERS, "loud", lambda value: value)
    line = check(entry, Ours({plan: entry}), java, 5, SEED, [0], shrink=False)
    assert line.result == DIFFERS
    assert "out, written in step" in line.why


@pytest.mark.java
def test_records_of_equal_times_are_compared_in_the_order_of_javas_one_task(java: Java) -> None:
    line = command._compared(random_plan_of(9300, 28), "9300 28", java, 4, 9300)
    assert line.result == DECLARED
    assert EQUAL_TIMES in line.why


@pytest.mark.java
def test_what_ends_in_an_error_in_java_is_an_outcome(java: Java) -> None:
    case = tuple(Pipe("in", key, b"v", 1) for key in (b"a", b"b", b"c", b"d"))
    ended = java.run("suppress_time_until_full", case, 0)
    assert ended.error is not None
    assert len(ended.outputs) == 3
    assert java.run("filter", case, 0).error is None


@pytest.mark.java
@pytest.mark.parametrize("name", ["windows_session_count", "windows_hopping_in_memory"])
@pytest.mark.parametrize(
    ("times", "over"),
    [((1, 16, 11), True), ((1, 18, 9), True), ((60_001, 59_986, 59_993), True), ((1, 20, 12), False)],
)
def test_behind_a_cache_java_merges_a_session_whose_retention_is_over_and_we_do_not(
    java: Java, name: str, times: tuple[int, ...], over: bool
) -> None:
    case = tuple(Pipe("in", b"a", b"v", time) for time in times)
    ours = Ours(ALL)
    declared = declared_for(name)
    assert declared is not None
    assert difference(ours.run(name, case, 0, "none"), java.run(name, case, 0), 0) is None
    behind_a_cache = difference(ours.run(name, case, 10 << 20, "none"), java.run(name, case, 10 << 20), 10 << 20)
    assert (behind_a_cache is not None) == over
    assert [declared.of(case, cache) for cache in (0, 10 << 20)] == [False, over]


@pytest.mark.java
def test_the_command_prints_a_line_for_each_topology(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Java", lambda: java)
    monkeypatch.setattr(java, "close", lambda: None)
    monkeypatch.setattr(command, "ALL", {name: entry for name, entry in ALL.items() if name != "foreign_key_left"})
    arguments = argparse.Namespace(
        what="topologies", topology=["foreign_key_left", "filter"], examples=2, cache=None
    )
    lines = command.run(arguments, SEED, Console(file=io.StringIO()))
    assert [(line.topology, line.result) for line in lines] == [("filter", EQUAL), ("foreign_key_left", ABSENT)]
    arguments.topology = ["flter"]
    with pytest.raises(BenchError, match=r"no topology flter: see filter"):
        command.run(arguments, SEED, Console(file=io.StringIO()))


# -- without one


class Fixed:
    """A side whose topologies write what a function says."""

    def __init__(self, writes: Callable[[Case], Outcome], text: str = "text") -> None:
        self._writes, self._text = writes, text

    def describe(self, topology: str, optimization: str = "none") -> str:
        return self._text

    def run(self, topology: str, case: Case, cache: int, optimization: str = "none") -> Outcome:
        return self._writes(case)


def copies(case: Case) -> Outcome:
    return Outcome(
        [{}, *({"out": [Row(*step[1:])]} if isinstance(step, Pipe) else dict[str, list[Row]]() for step in case)]
    )


def two_records_lost(case: Case) -> Outcome:
    """From the second record of key "b" on none is written."""
    outputs, seen = copies(case).outputs, 0
    for number, step in enumerate(case, 1):
        seen += isinstance(step, Pipe) and step.key == b"b"
        if seen > 1:
            outputs[number] = {}
    return Outcome(outputs)


def copying() -> Topology:
    return Topology().add_source("source", "in").add_sink("sink", "out", "source")


ENTRY = Entry("copies", copying, {"in": TEXT})


def test_of_a_difference_the_smallest_case_is_told() -> None:
    line = check(ENTRY, Fixed(two_records_lost), Fixed(copies), 200, SEED)
    assert line.result == DIFFERS
    steps = line.why.partition("The steps:\n")[2].splitlines()
    assert steps == ["  1. in <- 'b': 'a' at 1", "  2. in <- 'b': 'a' at 1"]


def test_the_same_seed_tries_the_same_cases() -> None:
    tried: list[list[Case]] = []
    for seed in (SEED, SEED, SEED + 1):
        cases: list[Case] = []

        def noted(case: Case, cases: list[Case] = cases) -> Outcome:
            cases.append(case)
            return copies(case)

        assert check(ENTRY, Fixed(noted), Fixed(copies), 20, seed, [0]).compared.examples == 20
        tried.append(cases)
    assert tried[0] == tried[1] != tried[2]


def test_cases_go_back_in_time_repeat_keys_and_let_the_wall_clock_go_on() -> None:
    steps: list[Case] = []

    def noted(case: Case) -> Outcome:
        steps.append(case)
        return copies(case)

    check(ENTRY, Fixed(noted), Fixed(copies), 100, SEED, [0])
    pipes = [[step for step in case if isinstance(step, Pipe)] for case in steps]
    times = [pair for case in pipes for pair in pairwise(step.timestamp for step in case)]
    assert any(isinstance(step, Advance) for case in steps for step in case)
    assert any(later < earlier for earlier, later in times)
    assert any(later == earlier for earlier, later in times)
    assert any(later > earlier + 60_000 for earlier, later in times)
    assert min(min(pair) for pair in times) == 1
    everything = [step for case in pipes for step in case]
    assert {None, b"", b"a"} <= {step.key for step in everything} & {step.value for step in everything}
    assert any(len(step.headers) > 1 for step in everything)


@pytest.mark.parametrize(
    "other",
    [
        ROW._replace(key=None), ROW._replace(value=b"2"), ROW._replace(value=None), ROW._replace(timestamp=6),
        ROW._replace(headers=()), ROW._replace(headers=(("h", None),)),
    ],
    ids=["key", "value", "null", "timestamp", "no header", "header's value"],
)  # fmt: skip
@pytest.mark.parametrize("cache", [0, 1])
def test_key_value_timestamp_and_headers_are_compared(other: Row, cache: int) -> None:
    told = difference(outcome(ROW), outcome(other), cache)
    assert told is not None
    assert f"ours  {ROW}" in told or "ours  none" in told
    assert f"java  {other}" in told
    assert difference(outcome(ROW), outcome(ROW), cache) is None


def test_without_a_cache_order_and_number_of_records_are_compared_too() -> None:
    other = ROW._replace(timestamp=6)
    assert difference(outcome(other, ROW), outcome(ROW, other), 0) is not None
    assert difference(outcome(ROW, ROW), outcome(ROW), 0) is not None
    assert difference(outcome(ROW), outcome(), 0) == f"out, written in step 1:\n  ours  {ROW}"
    assert difference(outcome(other, ROW), outcome(ROW), 1) is None


def test_a_record_in_another_step_is_a_difference() -> None:
    early, late = Outcome([{"out": [ROW]}, {}]), Outcome([{}, {"out": [ROW]}])
    assert str(difference(early, late, 0)).startswith("out, written before the first step:\n")
    assert difference(early, late, 1) is None


def test_a_changelogs_last_deletion_is_no_row_but_that_of_an_output_is_one() -> None:
    gone = ROW._replace(value=None)
    assert last_rows(outcome(ROW, gone, topic="x-changelog").outputs) == {}
    assert last_rows(outcome(ROW, gone).outputs) == {("out", b"a"): gone}


def test_an_error_on_one_side_only_is_a_difference() -> None:
    failed = outcome(ROW, error="ValueError: no")
    assert difference(failed, outcome(ROW, error="NullPointerException"), 0) is None
    assert difference(failed, outcome(ROW), 0) == "the end:\n  ours  ValueError: no, in step 2\n  java  all steps"
    assert difference(failed, Outcome([{}], "NullPointerException"), 1) is not None


def test_a_difference_of_texts_is_told_and_the_address_of_a_function_is_none() -> None:
    ours, other = (Fixed(copies, f"Sink: s (extractor class: {name})") for name in ("choose", "L$$1/0x7@12"))
    assert check(ENTRY, ours, other, 1, SEED).result == EQUAL
    line = check(ENTRY, ours, Fixed(copies, "another"), 1, SEED)
    assert (line.result, line.why.splitlines()[0]) == (DIFFERS, "describe(), optimization none:")


def test_a_declared_difference_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (Declared("copies", "a row", "on purpose"),)
    monkeypatch.setattr("compat_tests.java.bench.declared_for", lambda name: declared_for(name, table))
    line = check(ENTRY, Fixed(two_records_lost), Fixed(copies), 100, SEED, shrink=False)
    assert (line.result, line.why) == (DECLARED, "on purpose")
    other = replace(ENTRY, name="another")
    assert check(other, Fixed(two_records_lost), Fixed(copies), 100, SEED, shrink=False).result == DIFFERS


def test_a_difference_declared_of_a_topic_is_none_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(case: Case) -> Outcome:
        """As `copies`, and each row to a changelog as well."""
        return Outcome([{**step, "x-changelog": step.get("out", [])} for step in copies(case).outputs])

    for topics, result in (("-changelog$", DECLARED), ("^other$", DIFFERS)):
        table = (Declared("copies", "a row", "on purpose", topics),)
        monkeypatch.setattr("compat_tests.java.bench.declared_for", lambda name, table=table: declared_for(name, table))
        assert check(ENTRY, Fixed(elsewhere), Fixed(copies), 20, SEED, shrink=False).result == result
        assert check(ENTRY, Fixed(two_records_lost), Fixed(copies), 100, SEED, shrink=False).result == DIFFERS
        assert check(ENTRY, Fixed(copies), Fixed(copies), 20, SEED, shrink=False).result == EQUAL


def test_a_difference_declared_of_some_cases_is_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for of, result in ((lambda case, cache: len(case) > 2, DECLARED), (lambda case, cache: cache > 0, DIFFERS)):
        table = (Declared("copies", "a row", "on purpose", of=of),)
        monkeypatch.setattr("compat_tests.java.bench.declared_for", lambda name, table=table: declared_for(name, table))
        assert check(ENTRY, Fixed(two_records_lost), Fixed(copies), 100, SEED, shrink=False).result == result


def test_every_declared_difference_stands_in_the_docs() -> None:
    rows = (ROOT / "docs" / "differences-from-kafka-streams.md").read_text()
    for declared in DECLARED_TABLE:
        assert f"\n| {declared.row}" in rows, declared


def test_the_table_names_what_is_not_here_yet_and_the_exit_code_tells_differences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    differs = check(ENTRY, Fixed(two_records_lost), Fixed(copies), 50, SEED, shrink=False)
    monkeypatch.setattr("sys.argv", ["java", "--seed", "5"])
    for lines, code in (([differs, *absent(["later"])], 1), (absent(["later"]), 0)):
        monkeypatch.setattr(command, "run", lambda *_, lines=lines: lines)
        assert command.main() == code
        out = capsys.readouterr().out
        assert "later" in out
        assert "not here yet" in out
        assert ("again with --topology copies --seed 5 --examples 100" in out) == bool(code)
        assert ("The steps:" in out) == bool(code)


def test_a_name_stands_once() -> None:
    entries = Registry()
    entries.dsl("one")(lambda builder: builder.stream("in").to("out"))
    with pytest.raises(ValueError, match="two topologies one"):
        entries.dsl("one")(StreamsBuilder.build)


def test_bytes_are_shown_as_text_where_they_are_one() -> None:
    assert [shown(data) for data in (None, b"", "é".encode(), b"\0", b"\xff")] == ["null", "''", "'é'", "0x00", "0xff"]


def test_a_difference_shows_its_steps() -> None:
    assert str(DifferenceError("out differs", STEPS)) == (
        "out differs\nThe steps:\n  1. in <- 'a': '1' at 5\n  2. the wall clock goes on by 10 ms"
    )
