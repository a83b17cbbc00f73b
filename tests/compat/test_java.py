"""The bench against Java: a few cases of a few topologies, what its comparison tells apart, and mistakes planted into
our operators, each of which it must find. `python -m compat_tests.java` runs the whole of it."""

from __future__ import annotations

import argparse
import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from compat_tests.java import __main__ as command
from compat_tests.java.bench import ABSENT, DECLARED, DIFFERS, EQUAL, absent, check, text_difference
from compat_tests.java.cases import TEXT, Advance, Case, Outcome, Pipe, Row, shown
from compat_tests.java.comparing import DifferenceError, difference, last_rows
from compat_tests.java.declared import DECLARED as DECLARED_TABLE
from compat_tests.java.declared import Declared, declared_for
from compat_tests.java.jvm import BenchError, Java
from compat_tests.java.ours import Ours
from compat_tests.java.registry import Entry, Registry
from compat_tests.java.topologies import ALL
from milestones.common.kafka.embedded.errors import JarsError, JavaNotFoundError
from milestones.common.records import Record
from milestones.common.state.changelog import changelog
from milestones.common.state.stores import stores_with_headers, suppress_buffer
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.kinds import KINDS
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.stores_with_headers import SessionStoreWithHeaders
from milestones.common.state.stores.suppress_buffer import SuppressBuffer
from milestones.common.state.stores.suppress_layout import Buffered, size_of
from milestones.common.task import task_context
from milestones.common.task.scope import RecordInWork
from milestones.common.topology import StreamsBuilder, Topology
from milestones.common.topology.global_tables import StreamGlobalJoin
from milestones.common.topology.operators import foreign_keys
from milestones.common.topology.operators.aggregates import StreamAggregate, StreamCount
from milestones.common.topology.operators.foreign_keys import AnswerSubscription
from milestones.common.topology.operators.stream_joins import SelfJoin
from milestones.common.topology.operators.subscriptions import hash_of
from milestones.common.topology.operators.suppression import Suppress
from milestones.common.topology.operators.tables import TableRepartitionMap, ToStream
from milestones.common.topology.operators.value_transformer import TableTransformValues
from milestones.common.topology.optimization import REUSE, REWRITES
from milestones.common.topology.processor import ProcessorContext
from milestones.common.topology.program import OperatorContext, Process
from milestones.common.topology.read_only import KeepValues
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
    arguments = argparse.Namespace(topology=["foreign_key_left", "filter"], examples=2, cache=None)
    lines = command.run(arguments, SEED, Console(file=io.StringIO()))
    assert [(line.topology, line.result) for line in lines] == [("filter", EQUAL), ("foreign_key_left", ABSENT)]
    arguments.topology = ["flter"]
    with pytest.raises(BenchError, match=r"no topology flter: see filter"):
        command.run(arguments, SEED, Console(file=io.StringIO()))


# -- mistakes planted into our operators

Plant = Callable[[pytest.MonkeyPatch], None]


def wrapped(owner: type, wrap: Callable[[Any, OperatorContext, Process], Process], name: str = "bind") -> Plant:
    """Plants `wrap(operator, context, its closure)` in place of the closure."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        bind = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda operator, context: wrap(operator, context, bind(operator, context)))

    return plant


def planted(owner: type, bind: Callable[[Any, OperatorContext], Process]) -> Plant:
    """Plants `bind` in place of the operator's own."""
    return lambda monkeypatch: monkeypatch.setattr(owner, "bind", bind)


BIND_SUPPRESS = Suppress.bind
BIND_SELF_JOIN = SelfJoin.bind


def a_tombstone_lost(_operator: Any, _context: OperatorContext, process: Process) -> Process:
    return lambda key, value, timestamp: None if value is None else process(key, value, timestamp)


def a_deleted_row_lost(_operator: Any, _context: OperatorContext, process: Process) -> Process:
    return lambda key, change, timestamp: None if change[0] is None else process(key, change, timestamp)


def a_timestamp_off_by_one(_operator: Any, _context: OperatorContext, process: Process) -> Process:
    return lambda key, value, timestamp: process(key, value, timestamp + 1)


def a_late_record_left_out(_operator: Any, _context: OperatorContext, process: Process) -> Process:
    latest = [0]

    def punctual(key: Any, value: Any, timestamp: int) -> None:
        if timestamp >= latest[0] - 20:
            process(key, value, timestamp)
        latest[0] = max(latest[0], timestamp)

    return punctual


def the_new_pair_first(operator: TableRepartitionMap, context: OperatorContext, process: Process) -> Process:
    def swapped(key: Any, change: Any, timestamp: int) -> None:
        pairs = [None if value is None else operator.mapper(key, value) for value in change]
        if None in pairs or None in (pairs[0][0], pairs[1][0]) or pairs[0][0] == pairs[1][0]:  # type: ignore[index]
            process(key, change, timestamp)
            return
        (new_key, new), (old_key, old) = pairs  # type: ignore[misc]
        context.forward(new_key, (new, None), timestamp)
        context.forward(old_key, (None, old), timestamp)

    return swapped


def a_row_looked_for_by_the_record_s_own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = StreamGlobalJoin.bind
    monkeypatch.setattr(
        StreamGlobalJoin, "bind", lambda join, context: bind(replace(join, select=lambda key, _: key), context)
    )


def a_null_key_lost(join: StreamGlobalJoin, _context: OperatorContext, process: Process) -> Process:
    def strict(key: Any, value: Any, timestamp: int) -> None:
        if value is not None and join.select(key, value) is not None:
            process(key, value, timestamp)

    return strict


def a_header_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = ProcessorContext.forward

    def bare(context: ProcessorContext, record: Record, child: str | None = None) -> None:
        forward(context, record.with_headers(record.headers[1:]), child)

    monkeypatch.setattr(ProcessorContext, "forward", bare)


def a_deletion_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(store: Any, data: bytes, *_: Any) -> None:
        store._layers.put(data, None)
        store._read_cache.forget(data)

    monkeypatch.setattr(KeyValueStore, "_delete", delete)


def another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_keys, "hash_of", lambda data: hash_of(data)[::-1])


def a_window_closed_early(operator: Suppress, context: OperatorContext) -> Process:
    return BIND_SUPPRESS(replace(operator, wait_ms=operator.wait_ms - 1), context)


def the_first_time_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of a key that is kept back begins to wait anew."""
    put = SuppressBuffer.put

    def anew(buffer: Any, time: int, key: Any, change: Any, context: Any) -> None:
        data = buffer._key(key, "put")
        if data in buffer._by_key:
            buffer._place(data, None)
        put(buffer, time, key, change, context)

    monkeypatch.setattr(SuppressBuffer, "put", anew)


def the_record_in_work_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordInWork, "stand_in", lambda *_: ())
    monkeypatch.setattr(RecordInWork, "resume", lambda *_: None)


def headers_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def smaller(key: bytes, row: Buffered) -> int:
        return size_of(key, row._replace(context=row.context._replace(headers=None)))

    monkeypatch.setattr(suppress_buffer, "size_of", smaller)


def a_bound_off_by_one(operator: Suppress, context: OperatorContext) -> Process:
    return BIND_SUPPRESS(replace(operator, max_records=operator.max_records - 1), context)


def a_window_too_long(operator: SelfJoin, context: OperatorContext) -> Process:
    return BIND_SELF_JOIN(replace(operator, windows=operator.windows.after(operator.windows.after_ms + 1)), context)


def an_old_value_left_as_it_was(_operator: Any, _context: OperatorContext, process: Process) -> Process:
    return lambda key, change, timestamp: process(key, (change[0], None), timestamp)


def a_changelog_beside_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrites = {**REWRITES, REUSE: lambda _links, _names: None}
    monkeypatch.setattr("milestones.common.topology.optimization.REWRITES", rewrites)


def a_null_key_kept(_operator: Any, _context: OperatorContext, process: Process) -> Process:
    return lambda key, value, timestamp: process("" if key is None else key, value, timestamp)


def an_anchor_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_context, "first_due", lambda _anchor_ms, interval_ms, now_ms: now_ms + interval_ms)


def a_deletion_without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "timestamped-key-value-with-headers"
    monkeypatch.setitem(KINDS, kind, replace(KINDS[kind], changelog=changelog))  # type: ignore[arg-type]  # a dict


def a_row_without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_with_headers, "timed_headers", lambda _: [])


def the_record_s_headers_at_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionStoreWithHeaders, "flush", SessionStore.flush)


PLANTED: list[tuple[str, Plant, str, str]] = [
    ("a tombstone lost", wrapped(ToStream, a_tombstone_lost, "bind_new"), "table", "null"),
    ("a timestamp off by one", wrapped(StreamCount, a_timestamp_off_by_one), "group_by_key_count", "java"),
    ("a late record left out", wrapped(StreamAggregate, a_late_record_left_out), "group_by_key_aggregate", "java"),
    ("the new pair before the old", wrapped(TableRepartitionMap, the_new_pair_first), "table_group_by_count", "java"),
    ("another row", a_row_looked_for_by_the_record_s_own_key, "join_stream_global_inner", "java"),
    ("a null key lost", wrapped(StreamGlobalJoin, a_null_key_lost), "global_left_join_no_keys", "java"),
    ("a header dropped", a_header_dropped, "process", "header"),
    ("a deletion not logged", a_deletion_not_logged, "process", "seen-changelog"),
    ("another hash of a row", another_hash, "foreign_key_inner", "SUBSCRIPTION-REGISTRATION"),
    ("an answer a millisecond late", wrapped(AnswerSubscription, a_timestamp_off_by_one), "foreign_key_left", "java"),
    ("a window closed early", planted(Suppress, a_window_closed_early), "suppress_tumbling", "out"),
    ("the first time forgotten", the_first_time_forgotten, "suppress_time", "java"),
    ("the record in work sent", the_record_in_work_sent, "suppress_time", "header"),
    ("a bound off by one", planted(Suppress, a_bound_off_by_one), "suppress_time_records", "ours"),
    ("a window too long", planted(SelfJoin, a_window_too_long), "optimized_self_left", "out"),
    ("a changelog beside the topic", a_changelog_beside_the_topic, "optimized_tables", "rows-changelog"),
    ("an old value left as it was", wrapped(TableTransformValues, an_old_value_left_as_it_was),
     "table_transform_values_grouped", "java"),
    ("a null key kept", wrapped(KeepValues, a_null_key_kept), "read_only_store_by_default", "java"),
    ("an anchor forgotten", an_anchor_forgotten, "anchored_wall_clock_punctuation", "java"),
    ("headers not counted", headers_not_counted, "suppress_time_bytes", "java"),
    ("a deletion without headers", a_deletion_without_headers, "headers_table_filter_materialized", "header"),
    ("a row without headers", a_row_without_headers, "headers_store", "java"),
]


@pytest.mark.java
@pytest.mark.parametrize(("plant", "name", "told"), [each[1:] for each in PLANTED], ids=[each[0] for each in PLANTED])
def test_a_planted_mistake_is_found(
    java: Java, monkeypatch: pytest.MonkeyPatch, plant: Plant, name: str, told: str
) -> None:
    plant(monkeypatch)
    line = check(ALL[name], Ours(ALL), java, 60, SEED, [0], shrink=False)
    assert line.result == DIFFERS
    assert told in line.why


@pytest.mark.java
@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (wrapped(ToStream, a_deleted_row_lost), "reduce_that_deletes"),
        (the_record_s_headers_at_a_flush, "headers_sessions"),
    ],
)
def test_a_mistake_that_only_a_cache_shows_is_found_in_the_last_rows(
    java: Java, monkeypatch: pytest.MonkeyPatch, plant: Plant, name: str
) -> None:
    plant(monkeypatch)
    line = check(ALL[name], Ours(ALL), java, 60, SEED, [1 << 20], shrink=False)
    assert line.result == DIFFERS
    assert "the last record of a key" in line.why


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
    rows = (ROOT / "docs" / "architecture.md").read_text().partition("## Where this differs from Kafka Streams")[2]
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
