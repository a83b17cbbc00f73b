"""At least once, a crash leaves changelogs that are ahead of the committed offsets: stores that are restored from them
go by the committed times, so that a record which comes again finds what it has found before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milestones import SessionWindows, StreamsBuilder, Windowed
from milestones.common import serdes
from milestones.common.records import OffsetAndMetadata, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.state.stores.key_value_stores import ValueAndTimestamp
from milestones.common.state.stores.versions import NOT_PUT, STILL
from milestones.common.state.times import observed_time
from milestones.common.task.gone_rows import gone_by_commit
from milestones.common.task.metadata import (
    NOTHING_COMMITTED,
    CommittedNumbers,
    OffsetMetadata,
    committed_numbers,
    highest,
    offset_entry,
)
from milestones.common.task.standby import NOT_COMMITTED, StandbyTask
from milestones.common.task.task import PendingCommit
from tests.common.task.harness import Harness, committed, processing
from tests.common.task.test_bounded_stores import Message

IN, OTHER = TopicPartition("in", 0), TopicPartition("other", 0)
KEPT_MS = 200_000
LEAP_MS = 10 * KEPT_MS
TEXTS: dict[str, Any] = {"key_serde": serdes.STRING, "value_serde": serdes.STRING}


def crashed(harness: Harness, commit: PendingCommit, successor: Harness, *, standby: bool = False) -> Harness:
    """`successor` on an empty disk, with all that the changelog of "s" has got; what `commit` has is committed."""
    harness.outputs()
    changelog = [output for output in harness.sent if output.topic.endswith("-changelog")]
    if standby:
        follower = StandbyTask(successor.task.id, successor.task.subtopology, lambda: successor.state)
        follower.open()
        for at, output in enumerate(changelog):
            follower.know(committed(commit))
            follower.restore("s", [Message(output)], at + 1)
        follower.recycle()
    successor.task.open()
    successor.task.know(committed(commit))
    successor.task.restore("s", [Message(output) for output in changelog], len(changelog))
    successor.task.start(commit.offsets, commit.metadata)
    successor.ends["in"] = commit.offsets[IN]
    successor.sent = changelog
    return successor


# -- windows: a count per start


def counting(topics: tuple[str, ...] = ("in",)) -> Harness:
    def count(context: Any, record: Any) -> None:
        store, start = context.get_state_store("s"), record.timestamp
        before = store.fetch(record.key, start)
        taken = store.put(record.key, str(int(before or "0") + 1), start)
        found = sum(1 for _ in store.fetch(record.key, 0, 1 << 50))
        context.forward(record.with_value(f"{before} {taken} {found}"))

    spec = StoreSpec("s", "window", retention_ms=KEPT_MS, window_ms=10, **TEXTS)
    return Harness(processing(count, [spec], topics=topics))


@pytest.mark.parametrize("standby", [False, True], ids=["restored", "promoted"])
def test_a_window_that_is_gone_by_the_changelog_alone_is_there(standby: bool) -> None:
    task = counting().start()
    task.pipe(("k", "", 10), ("k", "", 10))
    commit = task.commit()
    task.pipe(("k", "", 10), ("z", "", LEAP_MS))
    after = crashed(task, commit, counting(), standby=standby)
    after.pipe(("k", "", 10), ("z", "", LEAP_MS), ("k", "", 10))
    results = [value for topic, _, value, _ in after.outputs() if topic == "out"]
    assert results == [b"3 True 1", b"1 True 1", b"None False 0"]


def test_a_window_that_is_gone_by_the_commit_is_neither_restored_nor_followed() -> None:
    task = counting().start()
    task.pipe(("k", "", 10), ("z", "", LEAP_MS))
    commit = task.commit()
    for standby in (False, True):
        assert len(crashed(task, commit, counting(), standby=standby).engine("s")) == 1


def test_what_is_ahead_of_the_commit_is_found_by_a_range_too() -> None:
    task = counting().start()
    task.pipe(("k", "", 10))
    commit = task.commit()
    task.pipe(("k", "", LEAP_MS))
    after = crashed(task, commit, counting())
    after.pipe(("k", "", 10))
    assert after.outputs()[-1][2] == b"1 True 2"


def test_a_standby_goes_by_what_is_committed_though_a_new_input_has_no_commit_yet() -> None:
    task, follower = counting().start(), counting(("in", "other"))
    task.pipe(("k", "", 10))
    commit = task.commit()
    task.pipe(("z", "", LEAP_MS))
    task.outputs()
    standby = StandbyTask(follower.task.id, follower.task.subtopology, lambda: follower.state)
    standby.open()
    standby.know({**committed(commit), OTHER: NOT_COMMITTED})
    changelog = [output for output in task.sent if output.topic.endswith("-changelog")]
    standby.restore("s", [Message(output) for output in changelog], len(changelog))
    assert len(follower.engine("s")) == 2


def test_a_standby_keeps_all_until_it_knows_what_is_committed() -> None:
    task = counting().start()
    task.pipe(("k", "", 10), ("z", "", LEAP_MS))
    commit, follower = task.commit(), counting()
    standby = StandbyTask(follower.task.id, follower.task.subtopology, lambda: follower.state)
    standby.open()
    one, other = (Message(output) for output in task.sent if output.topic.endswith("-changelog"))
    standby.restore("s", [one, other], 2)
    assert len(follower.engine("s")) == 2
    standby.know(committed(commit))
    standby.restore("s", [], 3)
    assert len(follower.engine("s")) == 1


@pytest.mark.parametrize("many", [1, 200])
def test_a_standby_drops_what_is_gone_also_where_times_share_entries(many: int) -> None:
    """What they share is lower than the commit's times, and of no store: the rows tell the times, as without them."""

    def count(context: Any, record: Any) -> None:
        context.get_state_store("s").put(record.key, "", record.timestamp)

    def of_many() -> Harness:
        names = ["s", *(f"other-{number}" for number in range(1, many))]
        specs = [StoreSpec(name, "window", retention_ms=KEPT_MS, window_ms=10, **TEXTS) for name in names]
        return Harness(processing(count, specs))

    task = of_many().start()
    task.pipe(("k", "", 10), ("z", "", LEAP_MS))
    assert len(crashed(task, task.commit(), of_many(), standby=True).engine("s")) == 1


def test_a_row_whose_record_comes_when_its_segment_is_gone_is_not_followed() -> None:
    """At least once, what was rolled back may be behind it in the changelog."""
    task, follower = counting().start(), counting()
    task.pipe(("k", "", 10), ("z", "", LEAP_MS))
    commit = task.commit()
    standby = StandbyTask(follower.task.id, follower.task.subtopology, lambda: follower.state)
    standby.open()
    standby.know(committed(commit))
    late, newest = (Message(output) for output in task.sent if output.topic.endswith("-changelog"))
    for at, one in enumerate((newest, late)):
        standby.restore("s", [one], at + 1)
    assert len(follower.engine("s")) == 1


def test_where_no_commit_has_the_time_the_rows_tell_it() -> None:
    """A program that keeps no times, as Kafka Streams, has committed a later offset, and has handed our entries on."""
    task = counting().start()
    task.pipe(("k", "", 10))
    commit = task.commit()
    task.pipe(("z", "", LEAP_MS))
    task.outputs()
    changelog = [output for output in task.sent if output.topic.endswith("-changelog")]
    after = counting()
    after.task.open()
    after.task.know({IN: OffsetAndMetadata(2, commit.metadata[IN])})
    after.task.restore("s", [Message(output) for output in changelog], len(changelog))
    after.task.start({IN: 2}, commit.metadata)
    after.ends["in"] = 2
    after.pipe(("k", "", 10))
    assert after.outputs()[-1][2] == b"None False 0"


def of_sessions(gap_ms: int) -> Harness:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    sessions = stream.group_by_key().windowed_by(SessionWindows(gap_ms, grace=0)).count("s")
    sessions.to_stream(lambda session, _: f"{session.start} {session.end}").to("out", key=serdes.STRING)
    return Harness(builder.build())


def test_a_session_that_is_ahead_of_the_commit_hides_no_session_of_the_time_of_now() -> None:
    task = of_sessions(10).start()
    task.pipe(("a", "", 50))
    commit = task.commit()
    task.pipe(("b", "", 54), ("b", "", 61))
    after = crashed(task, commit, of_sessions(10))
    after.pipe(("b", "", 54), ("a", "", 59))
    assert [*after.task.store("s").fetch("a")] == [(Windowed("a", 50, 59), 2)]


def test_a_session_in_the_midst_of_which_a_record_comes_again_grows_where_no_commit_has_the_time() -> None:
    """Offsets were set by hand, or another program has moved them: the rows tell the store's time, not the operator's,
    which begins anew."""
    task = of_sessions(60_000).start()
    task.pipe(("k", "", 580_000), ("k", "", 590_000), ("z", "", 600_000))
    task.commit()
    changelog = [output for output in task.sent if output.topic.endswith("-changelog")]
    after = of_sessions(60_000)
    after.task.open()
    after.task.know({IN: OffsetAndMetadata(0, "")})
    after.task.restore("s", [Message(output) for output in changelog], len(changelog))
    after.task.start({IN: 0}, {IN: ""})
    after.pipe(("k", "", 535_000))
    after.commit()
    results = {output.key: output.value for output in after.sent if output.topic == "out"}
    assert results == {b"580000 590000": None, b"535000 590000": (3).to_bytes(8, "big")}
    store = after.task.store("s")
    assert [*store.fetch("k")] == [(Windowed("k", 535_000, 590_000), 3)]
    assert not after.task._task_context.dropped_records


def test_no_window_is_gone_by_the_commit_that_it_has_not_as_emitted() -> None:
    spec = StoreSpec("s", "window", retention_ms=KEPT_MS, window_ms=10, closing=True, **TEXTS)
    assert gone_by_commit(spec, {observed_time("s"): LEAP_MS, "s": 50}) == 50 - 10 + KEPT_MS
    assert gone_by_commit(replace(spec, closing=False), {observed_time("s"): LEAP_MS, "s": 50}) == LEAP_MS


# -- versions


def versioned(results: list[Any]) -> Harness:
    def look_and_put(context: Any, record: Any) -> None:
        store = context.get_state_store("s")
        if record.value == "look":
            found = store.get("k", record.timestamp)
            results.append(found and found.value)
        elif record.value == "delete":
            results.append(store.delete(record.key, record.timestamp))
        else:
            results.append(store.put(record.key, record.value, record.timestamp))

    spec = StoreSpec("s", "versioned", retention_ms=KEPT_MS, segment_interval_ms=KEPT_MS // 4, **TEXTS)
    return Harness(processing(look_and_put, [spec]))


def test_a_version_of_long_ago_is_found_and_what_is_put_again_counts_as_put() -> None:
    before: list[Any] = []
    after: list[Any] = []
    task = versioned(before).start()
    task.pipe(("k", "one", 100), ("k", "two", 150))
    commit = task.commit()
    again = [("k", "look", 120), ("j", "x", 160), ("k", "three", 170), ("i", "delete", 160), ("z", "leaps", LEAP_MS)]
    task.pipe(*again)
    successor = crashed(task, commit, versioned(after))
    successor.pipe(*again)
    assert after == before[2:] == ["one", STILL, STILL, None, STILL]
    successor.pipe(("m", "new", 160), ("k", "look", 120))
    assert after[-2:] == [NOT_PUT, None], "time has moved on"


def test_an_old_version_that_comes_only_behind_what_is_ahead_is_none_as_in_a_restoration() -> None:
    results: list[Any] = []
    task = versioned([]).start()
    task.pipe(("k", "one", 100), ("k", "two", 150))
    commit = task.commit()
    task.pipe(("z", "leaps", LEAP_MS))
    successor = crashed(task, commit, versioned(results))
    successor.pipe(("k", "another", 150), ("k", "third", 160), ("m", "new", 140), ("k", "look", 170))
    assert results == [NOT_PUT, NOT_PUT, NOT_PUT, "two"]


def test_an_old_version_that_is_put_again_holds_until_the_one_that_follows() -> None:
    before: list[Any] = []
    after: list[Any] = []
    task = versioned(before).start()
    task.pipe(("k", "one", 200))
    commit = task.commit()
    again = [("k", "late", 100), ("k", "delete", 150), ("z", "leaps", LEAP_MS)]
    task.pipe(*again)
    successor = crashed(task, commit, versioned(after))
    successor.pipe(*again)
    assert before[1:3] == [200, ValueAndTimestamp("late", 100)]
    assert after[:2] == [150, None], "the deletion is there already"
    assert task.task.store("s").get("k") == successor.task.store("s").get("k")


# -- a time to live


def expiring(found: list[Any]) -> Harness:
    def look_and_put(context: Any, record: Any) -> None:
        store = context.get_state_store("s")
        found.append(store.get(record.key))
        store.put(record.key, record.value)

    return Harness(processing(look_and_put, [StoreSpec("s", "expiring-key-value", ttl_ms=KEPT_MS, **TEXTS)]))


def test_an_entry_that_was_deleted_after_the_commit_as_its_time_was_over_is_there() -> None:
    found: list[Any] = []
    task = expiring(found).start()
    task.pipe(("k", "one", 10), ("j", "other", 10))
    commit = task.commit()
    again = [("k", "two", 20), ("z", "leaps", LEAP_MS), ("j", "anew", LEAP_MS)]
    task.pipe(*again)
    successor = crashed(task, commit, expiring(found))
    found.clear()
    successor.pipe(*again)
    assert found == ["two", "leaps", "anew"], "as at least once has it: with what comes again"


def test_an_entry_is_deleted_once_a_commit_has_the_time_that_ends_it_in_this_process_and_in_the_next() -> None:
    def deleted(harness: Harness) -> list[bytes]:
        return [key for topic, key, value, _ in harness.outputs() if topic != "out" and value is None]

    task = expiring([]).start()
    task.pipe(("k", "one", 10), ("z", "leaps", LEAP_MS), ("y", "more", LEAP_MS))
    assert deleted(task) == []
    commit, successor = task.commit(), expiring([])
    crashed(task, commit, successor)
    for harness in (task, successor):
        harness.pipe(("x", "again", LEAP_MS))
        assert deleted(harness) == [b"k"]


# -- what a commit says


def metadata(offset: int, topic: str = "in", **times: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, OffsetMetadata(5, 1, "tx", times, offsets={offset_entry(topic): offset}).encode())


def test_the_numbers_are_exact_when_each_partition_is_where_its_metadata_was_written_for() -> None:
    found = committed_numbers({IN: metadata(3, a=1, b=7), OTHER: metadata(9, "other", a=4)})
    assert found == CommittedNumbers({"a": 4, "b": 7}, exact=True)


@pytest.mark.parametrize("other", [
    OffsetAndMetadata(9, ""), OffsetAndMetadata(9, metadata(8, "other", a=2).metadata),
    OffsetAndMetadata(9, OffsetMetadata(5, 1, "tx", {"a": 2}).encode()),
], ids=["set by hand", "moved by another program", "of a release without the entry"])  # fmt: skip
def test_one_partition_that_another_program_has_committed_leaves_times_to_the_rows(other: OffsetAndMetadata) -> None:
    assert not committed_numbers({IN: metadata(3, a=1), OTHER: other}).exact


def test_an_offset_of_another_partition_that_kafka_streams_hands_on_is_not_taken_for_its_own() -> None:
    """It has gone on in one of two topics of equal length, and gives each partition the highest of each entry."""
    ours = OffsetMetadata.decode(metadata(3, a=1).metadata), OffsetMetadata.decode(metadata(9, "other", a=1).metadata)
    merged = replace(ours[0], offsets=highest(each.offsets for each in ours)).encode()
    found = {IN: OffsetAndMetadata(9, merged), OTHER: metadata(9, "other", a=1)}
    assert not committed_numbers(found).exact


def test_where_nothing_is_committed_nothing_has_been_seen() -> None:
    assert committed_numbers({}) == NOTHING_COMMITTED == CommittedNumbers({}, exact=True)


def test_the_offset_is_no_entry_that_is_handed_on() -> None:
    read = OffsetMetadata.decode(metadata(3, a=1).metadata)
    assert (read.is_of("in", 3), read.is_of("other", 3), read.is_of("in", 4)) == (True, False, False)
    assert read.others == {"a": 1}
