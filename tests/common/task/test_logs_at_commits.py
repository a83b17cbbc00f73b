"""Stores that log at a commit: what their changelogs get. The store model has them in random lives, too."""

from __future__ import annotations

from typing import Any

import pytest

from milestones import SessionWindows, SlidingWindows, Topology
from milestones.common import serdes
from milestones.common.records import KEY, VALUE
from milestones.common.state import commit_log
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.topology import StreamsBuilder
from milestones.common.topology.handlers import LogAndContinue
from milestones.common.topology.processor import Record
from tests.common.task.harness import Harness, a_store, processing

CHANGELOG = "app-store-changelog"


def put_or_delete(context: Any, record: Record) -> None:
    """A value None deletes; a value that begins with "fail" raises once it is put."""
    store = context.get_state_store("store")
    if record.value is None:
        store.delete(record.key)
        return
    store.put(record.key, record.value)
    if record.value.startswith("fail"):
        raise RuntimeError("user code")


def writing(kind: str = "key-value", **settings: Any) -> Harness:
    settings = {"processing_handler": LogAndContinue(), "logs_at_commit": True, **settings}
    ttl_ms = 1_000 if kind == "expiring-key-value" else 0
    return Harness(processing(put_or_delete, [a_store(kind=kind, ttl_ms=ttl_ms)]), **settings).start()


def logged(h: Harness) -> list[tuple[Any, ...]]:
    """(key, value, timestamp) of what a commit logs."""
    before = len(h.sent)
    h.commit()
    return [(one.key, one.value, one.timestamp) for one in h.sent[before:] if one.topic == CHANGELOG]


def test_a_changelog_gets_the_last_write_of_each_key_with_its_own_time() -> None:
    h = writing()
    h.pipe(("a", "1", 5), ("b", "2", 9), ("a", "3", 7))
    assert h.outputs() == [], "nothing before the commit"
    assert sorted(logged(h)) == [(b"a", b"3", 7), (b"b", b"2", 9)]
    assert logged(h) == [], "and nothing again"


@pytest.mark.parametrize("kind", ["key-value", "timestamped-key-value"])
@pytest.mark.parametrize("deleted", [0, 1])
def test_a_large_commit_logs_each_key_once_with_its_last_value_and_time(kind: str, deleted: int) -> None:
    count = 2 * commit_log.AT_ONCE + 1

    def put(context: Any, record: Record) -> None:
        store = context.get_state_store("store")
        stamped = kind.startswith("timestamped") and record.value is not None
        store.put(record.key, ValueAndTimestamp(record.value, record.timestamp) if stamped else record.value)

    h = Harness(processing(put, [a_store(kind=kind)]), logs_at_commit=True).start()
    keys = [f"{number:04}" for number in range(count)]
    h.pipe(*[(key, "first", 5) for key in keys], *[(key, key, 6 + int(key)) for key in keys])
    h.pipe(*[(key, None, 9_000) for key in keys[:deleted]])
    gone = [(key.encode(), None, 9_000) for key in keys[:deleted]]
    assert sorted(logged(h)) == [*gone, *[(key.encode(), key.encode(), 6 + int(key)) for key in keys[deleted:]]]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_deletion_is_logged_with_its_time_also_of_a_key_that_came_and_went(exactly_once: bool) -> None:
    h = writing(transactional_id="app-1" if exactly_once else "")
    h.pipe(("a", "1", 5), ("a", None, 6))
    assert logged(h) == [(b"a", None, 6)]
    h.pipe(("a", "1", 7))
    assert logged(h) == [(b"a", b"1", 7)]
    h.pipe(("a", None, 8))
    assert logged(h) == [(b"a", None, 8)]
    assert h.engine("store") == {}


def test_a_record_that_fails_leaves_neither_its_write_nor_its_time() -> None:
    h = writing()
    h.pipe(("a", "1", 5), ("a", "fail", 7), ("b", "fail", 8))
    assert logged(h) == [(b"a", b"1", 5)]


def test_a_commit_that_fails_is_logged_by_the_next_one_once_with_what_came_later() -> None:
    h = writing()
    h.pipe(("a", "1", 5), ("b", "2", 6), ("c", "3", 7))
    commit = h.task.freeze()
    assert len(commit.all_outputs()) == 3
    h.pipe(("a", "4", 8), ("b", None, 9))
    h.task.thaw(commit)
    assert sorted(logged(h), key=lambda one: one[0]) == [(b"a", b"4", 8), (b"b", None, 9), (b"c", b"3", 7)]


def test_the_log_of_a_commit_under_way_is_the_same_each_time_whatever_is_written_meanwhile() -> None:
    h = writing()
    h.pipe(("a", "1", 5), ("b", "2", 6))
    commit = h.task.freeze()
    first = commit.all_outputs()
    h.pipe(("a", "3", 7), ("b", None, 8), ("c", "4", 9))
    assert commit.all_outputs() == first
    assert h.task.uncommitted_bytes() > 5 * 100, "both intervals count"
    h.task.applied(commit, {"store": 2})
    assert h.engine("store") == {b"a": b"1", b"b": b"2"}
    assert len(logged(h)) == 3


def test_a_store_whose_changelog_is_a_history_logs_every_write_in_order() -> None:
    h = writing("expiring-key-value")
    h.pipe(("a", "1", 5), ("a", "2", 6), ("a", "fail", 7), ("a", None, 8))
    assert h.outputs() == []
    assert logged(h) == [(b"a", b"1", 5), (b"a", b"2", 6), (b"a", None, 8)]


def test_after_a_roll_back_at_least_once_the_changelog_ends_as_the_store_is() -> None:
    h = writing()
    h.pipe(("a", "1", 5))
    h.commit()
    h.pipe(("a", "2", 6), ("b", "3", 7))
    sent = h.task.freeze().all_outputs()  # in the changelog, and not committed
    h.task.roll_back()
    h.task.start(dict.fromkeys(h.task.partitions, 1), {})
    ends = {output[KEY]: output[VALUE] for output in sent} | {key: value for key, value, _ in logged(h)}
    assert ends == {b"a": b"1", b"b": None}


def test_a_commit_logs_deletions_last_so_that_no_first_part_of_it_lacks_a_row_that_has_moved() -> None:
    h = writing()
    h.pipe(("old", "1", 5))
    h.commit()
    h.pipe(("old", None, 6), ("new", "1", 6))
    assert logged(h) == [(b"new", b"1", 6), (b"old", None, 6)]


def test_a_roll_back_logs_what_is_stored_before_deletions() -> None:
    h = writing()
    h.pipe(("old", "1", 5))
    h.commit()
    h.pipe(("old", None, 6), ("a new one", "1", 6))
    assert h.task.freeze().all_outputs()  # in the changelog, and not committed
    h.task.roll_back()
    h.task.start(dict.fromkeys(h.task.partitions, 1), {})
    assert [(key, value) for key, value, _ in logged(h)] == [(b"old", b"1"), (b"a new one", None)]


@pytest.mark.parametrize("logs_at_commit", [False, True], ids=["before m5", "from m5 on"])
def test_each_first_part_of_what_is_logged_has_the_session_that_has_grown(logs_at_commit: bool) -> None:
    h = Harness(counted(SessionWindows(10, grace=0)), logs_at_commit=logs_at_commit).start()
    h.pipe(("a", "x", 5), ("a", "x", 8))
    h.commit()
    h.pipe(("a", "x", 12))
    (_, grown, _), (_, old, _) = logged(h)
    assert (grown, old) == ((3).to_bytes(8, "big"), None)


def test_behind_a_cache_the_update_of_the_session_that_was_comes_before_that_of_the_grown_one() -> None:
    """What groups these updates takes out before it adds, as without a cache."""
    h = Harness(counted(SessionWindows(10, grace=0)), cache_max_bytes=1 << 20).start()
    h.pipe(("a", "x", 5))
    h.commit()
    sent = len(h.sent)
    h.pipe(("a", "x", 8))
    h.commit()
    assert [one.value for one in h.sent[sent:] if one.topic == "out"] == [None, (2).to_bytes(8, "big")]


def test_a_record_in_the_midst_of_a_session_deletes_nothing() -> None:
    h = Harness(counted(SessionWindows(10, grace=0))).start()
    h.pipe(("a", "x", 5), ("a", "x", 8), ("a", "x", 6))
    assert [value for _, value, _ in logged(h)][-1] == (3).to_bytes(8, "big")


@pytest.mark.parametrize("logs_at_commit", [False, True], ids=["before m5", "from m5 on"])
def test_the_sliding_window_that_ends_with_a_record_is_logged_behind_the_others_that_the_record_makes(
    logs_at_commit: bool,
) -> None:
    h = Harness(counted(SlidingWindows(10, grace=0)), logs_at_commit=logs_at_commit).start()
    h.pipe(("a", "x", 20), ("a", "x", 24))
    starts = [int.from_bytes(key[-12:-4], "big") for key, _, _ in logged(h)]
    assert starts == [21, 14, 10]


def test_deletions_go_from_the_first_key_on_as_the_window_that_ends_with_a_record_is_the_first_to_go() -> None:
    rows = [(b"left", None), (b"right", None), (b"other", b"1"), (b"earlier", b"1")]
    assert commit_log.safe_order(rows) == [(b"other", b"1"), (b"earlier", b"1"), (b"left", None), (b"right", None)]


def counted(windows: SessionWindows | SlidingWindows) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().windowed_by(windows).count("store").to_stream().to("out")
    return builder.build()


def test_an_aggregation_emits_every_update_and_logs_the_last_one() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=str, value=str).group_by_key().count("store")
    counts.to_stream().to("out", value=serdes.LONG)
    h = Harness(builder.build(), logs_at_commit=True).start()
    h.pipe(*(("a", "x", at) for at in range(1, 51)))
    assert [output[0] for output in h.outputs()] == ["out"] * 50
    assert logged(h) == [(b"a", (50).to_bytes(8, "big"), 50)]


def test_what_a_history_has_written_counts_with_the_uncommitted_bytes_until_it_is_applied() -> None:
    h = writing("expiring-key-value")
    h.pipe(*(("a", "x" * 10_000, at) for at in range(1, 51)))
    assert h.task.uncommitted_bytes() > 50 * 10_000, "each write is to be logged"
    commit = h.task.freeze()
    assert h.task.uncommitted_bytes() > 50 * 10_000
    h.task.applied(commit, {"store": 50})
    assert h.task.uncommitted_bytes() == 0
