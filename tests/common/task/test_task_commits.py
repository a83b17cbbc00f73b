"""What a task promises about its boundaries: commits, roll-backs, its life from opening to close."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from milestones.common.errors import OwnershipError, StateCorruptError, StateError
from milestones.common.records import OffsetAndMetadata, StoreId, TaskId, TopicPartition
from milestones.common.task.metadata import OffsetMetadata
from milestones.common.task.task import TaskState
from milestones.common.topology.handlers import LogAndContinue
from tests.common.task.harness import Harness, a_store, forward, forwarding, keep, keeping, message, named, processing

IN = TopicPartition("in", 0)
SKIP = LogAndContinue()
DEAD_LETTERS = LogAndContinue("dead")


# -- positions


def test_a_task_is_as_far_as_its_last_confirmed_commit_also_before_that_is_written() -> None:
    h = keeping()
    h.feed(("k", "a", 1), ("k", "b", 2))
    h.run(1)
    h.commit()
    h.run()
    commit = h.task.freeze()
    assert h.task.position() == 1
    h.task.confirmed(commit, {"store": 2})
    assert (h.task.position(), h.task.changelog_offsets()) == (2, {"store": 1})
    h.task.apply()
    assert (h.task.position(), h.task.position({"store"})) == (2, 0)


def test_a_damaged_store_that_could_not_be_set_aside_has_no_offset() -> None:
    h = keeping()
    del h.state.stores["store"]
    assert (h.task.changelog_offsets(), h.task.position()) == ({"store": None}, 0)


# -- commits


def test_a_staged_boundary_has_an_offset_for_each_partition_also_an_unchanged_one() -> None:
    h = forwarding(topics=("in", "other"))
    h.feed(("k", "v", 1))
    h.task.input.reached_end(TopicPartition("other", 0), 0, 0)
    h.run()
    commit = h.task.freeze()
    assert commit.offsets == {IN: 1, TopicPartition("other", 0): 0}
    assert OffsetMetadata.decode(commit.metadata[IN]).stream_time == 1
    assert OffsetMetadata.decode(commit.metadata[TopicPartition("other", 0)]).stream_time == -1


def test_outputs_are_given_out_once_either_taken_or_staged() -> None:
    h = forwarding()
    h.feed(("k", "a", 1), ("k", "b", 1))
    h.run(1)
    assert len(h.task.take_outputs()) == 1
    h.run(1)
    assert [output.value for output in named(h.task.freeze().outputs)] == [b"b"]
    assert h.task.take_outputs() == []


def test_the_committed_offset_passes_trailing_control_records_once_all_before_them_is_processed() -> None:
    h = forwarding()
    h.feed(("k", "a", 1), ("k", "b", 1))
    h.task.input.reached_end(IN, 5, 0)
    h.run(1)
    assert h.commit().offsets == {IN: 1}
    h.run()
    assert h.commit().offsets == {IN: 5}
    assert not h.task.commit_needed()
    h.task.input.reached_end(IN, 6, 0)
    assert h.task.commit_needed()
    assert (h.commit().offsets, h.task.commit_needed()) == ({IN: 6}, False)


def test_a_commit_is_needed_after_a_record_and_not_after_it_was_frozen() -> None:
    h = forwarding()
    assert not h.task.commit_needed()
    h.pipe(("k", "a", 1))
    assert h.task.commit_needed()
    commit = h.task.freeze()
    assert not h.task.commit_needed()
    h.task.thaw(commit)
    assert h.task.commit_needed()


def test_a_second_commit_while_one_is_pending_is_a_bug() -> None:
    h = forwarding()
    h.task.freeze()
    with pytest.raises(OwnershipError, match=r"commit 1 is still pending. This is a bug"):
        h.task.freeze()


@pytest.mark.parametrize(("logged", "count", "size", "steps"), [
    (True, 4_500, 1, [(2000, None), (2000, None), (500, 4500)]),
    (True, 200, 32 * 1024, [*[(31, None)] * 6, (14, 200)]),
    (False, 4_500, 1_000, [(4500, None)]),
], ids=["many entries", "large values: steps of a mebibyte", "no changelog: one step"])  # fmt: skip
def test_a_commit_is_applied_in_steps_the_last_one_with_the_changelogs_offset(
    logged: bool, count: int, size: int, steps: list[tuple[int, int | None]]
) -> None:
    def many(context: Any, record: Any) -> None:
        for index in range(count):
            context.get_state_store("store").put(f"{index}", "v" * size)

    h = Harness(processing(many, [a_store(logged=logged)])).start()
    h.pipe(("a", "1", 1))
    h.commit()
    assert [(len(batch), offset) for batch, offset in h.state.stores["store"].engine.calls] == steps
    assert (len(h.engine("store")), len(h.sent)) == (count, count * logged)
    assert h.task.changelog_offsets() == ({"store": count} if logged else {})


def test_writes_of_a_logged_store_without_an_offset_are_refused() -> None:
    h = keeping()
    h.pipe(("a", "1", 1))
    with pytest.raises(OwnershipError, match=r"store without an offset of its changelog"):
        h.task.applied(h.task.freeze(), {})


def test_commit_numbers_rise_and_travel_with_the_transactional_id() -> None:
    h = forwarding(transactional_id="app-1")
    first, second = h.commit(), h.commit()
    data = OffsetMetadata.decode(second.metadata[IN])
    assert (first.number, second.number, data.commit, data.transactional_id) == (1, 2, 2, "app-1")


def test_a_task_goes_on_with_the_stream_time_and_commit_number_that_were_committed() -> None:
    metadata = {IN: OffsetMetadata(77, 41, "app-1").encode()}
    h = Harness(processing(forward)).start(metadata)
    assert (h.task.stream_time, h.task.freeze().number) == (77, 42)


def test_metadata_that_others_wrote_is_handed_on() -> None:
    h = Harness(processing(forward)).start({IN: OffsetMetadata(1, others={"theirs": 9}).encode()})
    assert OffsetMetadata.decode(h.task.freeze().metadata[IN]).others == {"theirs": 9}


# -- roll-back


def test_a_roll_back_returns_to_the_last_commit_and_drops_the_rest() -> None:
    h = keeping()
    h.feed(("a", "1", 5), ("a", "2", 9), ("b", "3", 12))
    h.run(1)
    h.commit()
    h.run(1)
    h.task.freeze()
    h.run(1)
    h.task.roll_back()
    store = h.task.store("store")
    assert (store.get("a"), store.get("b"), list(store.all())) == ("1", None, [("a", "1")])
    assert (h.task.input.position(IN), h.task.stream_time, h.task.input.waiting(), h.task.epoch) == (1, 5, 0, 1)
    assert (h.task.take_outputs(), h.task.commit_needed(), h.task.uncommitted_bytes()) == ([], False, 0)


def test_what_couldnt_be_applied_is_restored_after_a_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several tasks whose stores are damaged at once the recovery rebuilds one."""
    h = keeping(transactional_id="tx")
    h.pipe(("a", "1", 5))
    commit = h.task.freeze()
    h.task.confirmed(commit, {"store": 1})
    monkeypatch.setattr(h.state.stores["store"].engine, "apply", damaged)
    with pytest.raises(StateCorruptError):
        h.task.apply()
    monkeypatch.undo()
    assert (h.task.applying, h.task.committable) == (False, False)
    h.task.roll_back()
    h.task.compare({IN: OffsetAndMetadata(1, commit.metadata[IN])})
    assert h.task.needs_restoration
    h.task.restore("store", [message(0, b"a", b"1", 5)], 1)
    h.task.start({IN: 1}, commit.metadata)
    assert (h.task.store("store").get("a"), h.task.committable) == ("1", True)
    h.task.roll_back()
    h.task.compare({IN: OffsetAndMetadata(1, commit.metadata[IN])})
    assert not h.task.needs_restoration


@pytest.mark.parametrize("transactional_id", ["tx", ""])
def test_a_commit_of_a_punctuation_that_was_made_without_an_answer_is_restored_though_no_offset_moved(
    transactional_id: str,
) -> None:
    h = keeping(transactional_id=transactional_id)
    h.pipe(("a", "1", 5))
    commit = h.task.freeze()
    h.task.confirmed(commit, {"store": 1})
    h.task.apply()
    unanswered = h.task.freeze()
    assert unanswered.offsets == commit.offsets
    h.task.roll_back()
    h.task.compare({IN: OffsetAndMetadata(1, commit.metadata[IN])})
    assert not h.task.needs_restoration
    h.task.compare({IN: OffsetAndMetadata(1, unanswered.metadata[IN])})
    assert h.task.needs_restoration


def damaged(*_: Any, **__: Any) -> Any:
    raise StateCorruptError("a block's checksum is wrong", [StoreId(TaskId(0, 0), "store")])


def test_a_commit_of_before_a_roll_back_is_refused() -> None:
    h = keeping()
    commit = h.task.freeze()
    h.task.roll_back()
    for finish in (lambda: h.task.applied(commit, {}), lambda: h.task.thaw(commit)):
        with pytest.raises(OwnershipError, match=r"commit 1 of epoch 0 isn't pending \(epoch 1\)"):
            finish()


def test_a_record_whose_task_is_rolled_back_meanwhile_leaves_nothing() -> None:
    def unlucky(context: Any, record: Any) -> None:
        context.get_state_store("store").get("a")
        keep(context, record)
        h.task.roll_back()
        keep(context, record)

    h = Harness(processing(unlucky, [a_store()])).start()
    h.pipe(("a", "1", 5), ("b", "2", 6))
    assert (h.task.input.position(IN), h.task.take_outputs(), list(h.task.store("store").all())) == (0, [], [])
    assert h.task.store("store").get("a") is None


def test_a_task_can_be_started_anew_after_a_roll_back_where_kafka_says() -> None:
    h = forwarding()
    h.task.roll_back()
    h.task.start({IN: 30}, {IN: OffsetMetadata(4).encode()})
    assert (h.task.input.position(IN), h.task.stream_time, h.task.state) == (30, 4, TaskState.READY)


# -- life


def test_changelog_records_are_restored_straight_into_the_engine() -> None:
    h = Harness(processing(keep, [a_store()]))
    h.task.open()
    assert (h.task.needs_restoration, h.task.changelog_offsets()) == (True, {"store": None})
    batch = [message(0, b"a", b"1", 1), message(1, b"b", b"2", 1), message(2, b"a", None, 1)]
    h.task.restore("store", batch, 7)
    assert (h.engine("store"), h.task.changelog_offsets()) == ({b"b": b"2"}, {"store": 7})
    h.task.restore("store", [], 9)
    assert h.task.changelog_offsets() == {"store": 9}
    h.task.clear("store", "a test says so")
    assert (h.task.changelog_offsets(), h.task.commit_needed()) == ({"store": None}, False)


def test_a_store_kept_in_a_source_topic_is_restored_up_to_the_committed_offset_and_writes_nothing() -> None:
    h = Harness(processing(keep, [a_store(source_topic="in")]))
    h.task.open()
    assert h.task.restoration_ends({IN: 50}, {IN: 30}) == {IN: 30}
    assert h.task.restoration_ends({IN: 50}, {}) == {IN: 0}
    with pytest.raises(OwnershipError, match=r"must know the committed offsets"):
        h.task.restoration_ends({IN: 50})
    h.task.start({IN: 0}, {})
    h.pipe(("a", "1", 1))
    assert [topic for topic, *_ in h.outputs()] == ["out"]
    h.task.applied(h.task.freeze(), {})
    assert (h.engine("store"), h.task.changelog_offsets()) == ({b"a": b"1"}, {"store": 1})


def test_what_processing_had_to_skip_does_not_come_back_from_a_source_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    h = Harness(processing(keep, [a_store(source_topic="in")]))
    h.task.open()
    rows = [(b"a", b"1"), (b"a", b"\xff"), (b"\xff", b"2"), (None, b"3")]
    batch = [message(offset, key, value, 1) for offset, (key, value) in enumerate(rows)]
    h.task.restore("store", batch, 4)
    assert (h.engine("store"), h.task.changelog_offsets()) == ({b"a": b"1"}, {"store": 4})
    assert "store store is restored from in without 2 records that can't be read" in caplog.text


def test_a_task_isnt_restored_once_it_runs_nor_processed_before() -> None:
    h = Harness(processing(keep, [a_store()]))
    with pytest.raises(OwnershipError, match=r"task 0_0 is created: it can't become running. This is a bug"):
        h.run()
    h.start()
    with pytest.raises(OwnershipError, match=r"is ready: it must be restoring for this"):
        h.task.restore("store", [], 1)


def test_a_task_needs_a_position_for_each_partition() -> None:
    h = Harness(processing(forward))
    h.task.open()
    with pytest.raises(OwnershipError, match=r"without positions of \['in-0'\]"):
        h.task.start({}, {})


def test_closing_drops_what_isnt_applied_and_shuts_processors_and_engines_once() -> None:
    closed: list[str] = []
    topology = processing(keep, [a_store()], close=lambda: closed.append("processor"))
    h = Harness(topology).start()
    h.pipe(("a", "1", 1))
    h.task.close()
    h.task.close()
    assert (closed, h.state.closed, h.engine("store"), h.task.state) == (["processor"], 1, {}, TaskState.CLOSED)
    with pytest.raises(StateError, match=r"store store of task 0_0 isn't open"):
        h.task.store("store").get("a")


def test_a_processor_that_fails_to_close_doesnt_keep_stores_open() -> None:
    def failing() -> None:
        raise RuntimeError("close")

    h = Harness(processing(keep, [a_store()], close=failing)).start()
    with pytest.raises(RuntimeError, match=r"close"):
        h.task.close()
    assert (h.state.closed, h.task.state) == (1, TaskState.CLOSED)


def test_a_store_is_given_away_without_a_call_to_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    h = keeping()
    for name in ("scan", "offset", "get"):
        monkeypatch.setattr(h.state.stores["store"].namespace, name, Mock(side_effect=StateError("an engine is asked")))
    assert h.task.recycle() is h.state
    assert (h.task.state, h.state.closed) == (TaskState.CLOSED, 0)


def test_an_unopened_task_can_be_closed() -> None:
    h = Harness(processing(forward))
    h.task.close()
    assert h.state.closed == 0


def test_uncommitted_bytes_follow_what_is_written_and_end_with_the_commit() -> None:
    h = keeping()
    h.pipe(*((f"{index}", "x" * 1000, 1) for index in range(50)))
    assert 50_000 < h.task.uncommitted_bytes() < 80_000
    h.commit()
    assert h.task.uncommitted_bytes() == 0
