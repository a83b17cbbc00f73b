"""Mistakes planted into our operators, each of which the bench against Java must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from compat_tests.java.bench import DIFFERS, check
from compat_tests.java.jvm import Java
from compat_tests.java.ours import Ours
from compat_tests.java.topologies import ALL
from milestones.common.records import Record
from milestones.common.state.changelog import changelog
from milestones.common.state.stores import stores_with_headers, suppress_buffer
from milestones.common.state.stores.key_value_stores import KeyValueStore
from milestones.common.state.stores.kinds import KINDS
from milestones.common.state.stores.session_store import SessionStore
from milestones.common.state.stores.stores_with_headers import SessionStoreWithHeaders
from milestones.common.state.stores.suppress_buffer import SuppressBuffer
from milestones.common.state.stores.suppress_layout import size_of_parts
from milestones.common.task import task_context
from milestones.common.task.scope import RecordInWork
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
from tests.compat import test_java

java, quiet, SEED = test_java.java, test_java.quiet, test_java.SEED

Plant = Callable[[pytest.MonkeyPatch], None]


def why_it_differs(java: Java, name: str, cache: int = 0) -> str:
    """What the bench says about a topology that must give other results than Java's."""
    line = check(ALL[name], Ours(ALL), java, 60, SEED, [cache], shrink=False)
    assert line.result == DIFFERS
    return line.why


def wrapped(owner: type, wrap: Callable[[Any, OperatorContext, Process], Process], name: str = "bind") -> Plant:
    """Plants `wrap(operator, context, its closure)` in place of the closure."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        bind = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda operator, context: wrap(operator, context, bind(operator, context)))

    return plant


def planted(owner: type, bind: Callable[[Any, OperatorContext], Process]) -> Plant:
    """Plants `bind` in place of the operator's own."""
    return lambda monkeypatch: monkeypatch.setattr(owner, "bind", bind)


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


def emits_as_if(less: str) -> Plant:
    """Plants a suppress that emits as if this field of it were lower by 1."""
    emitting = Suppress._emitting_due

    def other(suppress: Suppress, context: OperatorContext, buffer: Any) -> Any:
        changes: dict[str, Any] = {less: getattr(suppress, less) - 1}
        return emitting(replace(suppress, **changes), context, buffer)

    return lambda monkeypatch: monkeypatch.setattr(Suppress, "_emitting_due", other)


def the_first_time_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of a key that is kept back begins to wait anew."""
    keep = SuppressBuffer.keep

    def anew(buffer: Any, time: int, key: bytes, *update: Any) -> None:
        if key in buffer._by_key:
            buffer._place(key, None)
        keep(buffer, time, key, *update)

    monkeypatch.setattr(SuppressBuffer, "keep", anew)


def the_record_in_work_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SuppressBuffer, "is_written_by", lambda *_: False)  # such a row has its headers
    monkeypatch.setattr(RecordInWork, "stand_in", lambda *_: ())
    monkeypatch.setattr(RecordInWork, "resume", lambda *_: None)


def headers_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def smaller(key: bytes, _headers: Any, *parts: Any) -> int:
        return size_of_parts(key, None, *parts)

    monkeypatch.setattr(suppress_buffer, "size_of_parts", smaller)


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
    ("a window closed early", emits_as_if("wait_ms"), "suppress_tumbling", "out"),
    ("the first time forgotten", the_first_time_forgotten, "suppress_time", "java"),
    ("the record in work sent", the_record_in_work_sent, "suppress_time", "header"),
    ("a bound off by one", emits_as_if("max_records"), "suppress_time_records", "ours"),
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
    assert told in why_it_differs(java, name)


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
    assert "the last record of a key" in why_it_differs(java, name, cache=1 << 20)
