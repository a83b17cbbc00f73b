"""Standbys of a stream thread: what they read, and how far."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest

from milestones import TimeWindows
from milestones.common import serdes
from milestones.common.errors import KafkaUnreachableError, MembershipError, StateCorruptError
from milestones.common.kafka.consumers import Fetched
from milestones.common.kafka.membership import StaleGenerationError
from milestones.common.records import StoreId, TopicPartition
from milestones.common.state.spec import StoreSpec
from milestones.common.task.metadata import OffsetMetadata
from milestones.common.task.task import TaskState
from milestones.common.topology import StreamsBuilder
from milestones.common.windowed import START_AND_SEQUENCE
from milestones.instance.admin_thread import Bounds
from milestones.stream_thread.task_removal import LOCK_PAUSE_MS
from tests.milestones.fakes import CHANGELOG, IN, LOG, LOG_B, A, B, Running, World, counting, put, standby


def test_a_standby_has_what_its_changelog_has_and_goes_on_reading_it() -> None:
    world = World()
    world.logs[LOG].add("1", key="a").control()
    r = standby(world)
    assert r.world.state.text() == {"a": "1"}
    assert world.state.offset(A) == 2
    world.logs[LOG].add("2", key="b").add("3", key="a").control()
    r.step(2)
    assert r.world.state.text() == {"a": "3", "b": "2"}
    assert world.state.offset(A) == 5
    assert r.places == {A: "standby"}


def test_a_thread_with_nothing_but_standbys_is_running() -> None:
    world = World()
    world.requests.holds = True
    r = standby(world)
    assert r.tasks.all_running
    assert world.states[-1].value == "RUNNING"


def test_a_standby_waits_for_its_directory_and_keeps_nobody_from_running() -> None:
    world = World()
    world.state.locked.add(A)
    r = standby(world, A, active=(1,))
    assert r.places == {A: "waiting", B: "processing"}
    assert r.tasks.all_running
    world.state.locked.clear()
    world.clock.advance(LOCK_PAUSE_MS)
    r.step(2)
    assert r.places == {A: "standby", B: "processing"}


def test_a_standby_that_goes_away_is_closed_and_nothing_of_it_is_read_any_more() -> None:
    r = standby()
    r.rebalance()
    assert r.world.state.standbys[A].state is TaskState.CLOSED
    assert r.world.state.held == set()
    assert r.world.restorer.assigned == frozenset()


def test_a_standby_that_stays_is_not_touched_by_a_rebalance() -> None:
    r = standby()
    before, moves = r.world.state.standbys[A], len(r.world.restorer.moves)
    r.rebalance(1, warmup=frozenset({A}), steps=3)
    assert r.world.state.standbys[A] is before
    assert [move for move in r.world.restorer.moves[moves:] if LOG in move] == []


def test_a_standby_whose_changelog_was_truncated_past_it_is_rebuilt() -> None:
    r = standby(World().logged("1", key="a"))
    r.world.logs[LOG].control(9).add("2", key="new")
    r.world.logs[LOG].cut_to(5)
    r.step(5)
    assert r.world.state.text() == {"new": "2"}
    assert r.world.state.offset(A) == 11


def test_a_standby_notices_by_itself_that_its_changelog_was_made_anew_and_is_as_long_again() -> None:
    world = World()
    world.requests.topic_ids = {CHANGELOG: "first"}
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    del world.logs[LOG]
    world.logs[LOG].add("7").add("8", key="new")
    world.requests.topic_ids = {CHANGELOG: "second"}
    r.step(ms=60_000)
    r.step(5)
    assert r.world.state.text() == {"k": "7", "new": "8"}
    assert world.state.changelog_ids[A] == {"counts": "second"}


def test_a_standby_that_stays_the_same_for_long_is_asked_about_and_not_read_anew() -> None:
    world = World()
    world.requests.topic_ids = {CHANGELOG: "first"}
    world.logs[LOG].add("1", key="a")
    r = standby(world)
    moves = len(world.restorer.moves)
    world.requests.holds = True
    r.step(ms=60_000)
    world.logs[LOG].add("2", key="b")
    r.step(2)
    assert len(world.requests.questions) == 1
    world.requests.answer()
    r.step(2)
    assert len(world.restorer.moves) == moves
    assert r.world.state.text() == {"a": "1", "b": "2"}


def test_the_answer_to_a_question_from_before_does_not_make_a_standby_seem_ahead_of_its_changelog() -> None:
    r = standby(World().logged("1", key="a"))
    r.world.requests.holds = True
    r.step(ms=60_000)
    (old,) = r.world.requests.questions
    r.world.requests.questions.clear()
    old_bounds = r.world.logs.bounds([LOG])
    r.world.logs[LOG].add("2", key="b")
    r.step()
    r.world.restorer.next.append(Fetched(out_of_range=[LOG]))
    r.step()
    old.reply_to.try_put(Bounds(A, old_bounds))
    r.step()
    r.world.requests.holds = False
    r.world.requests.answer()
    r.step(3)
    assert r.world.state.offset(A) == 2
    assert r.world.state.opens == 1
    assert r.world.state.text() == {"a": "1", "b": "2"}


def test_a_standby_whose_changelog_is_deleted_waits_for_a_new_one_and_the_thread_goes_on() -> None:
    world = World()
    put(world, 1, "x")
    r = standby(world, A, active=(1,))
    world.restorer.next.append(Fetched(gone=[LOG]))
    world.requests.error = KafkaUnreachableError("no such topic")
    r.step(5, ms=1_000)
    r.feed("y", partition=1, steps=3)
    assert r.loop._processing.processed == 2
    world.requests.error = None
    world.logs[LOG].add("1", key="new")
    r.step(4, ms=1_000)
    assert r.world.state.text() == {"new": "1"}


def test_a_standby_is_asked_about_again_once_a_second_at_most_while_kafka_does_not_answer() -> None:
    world = World()
    world.requests.error = KafkaUnreachableError("no broker")
    r = standby(world)
    r.step(20, ms=100)
    assert world.requests.asked <= 4


def test_a_damaged_store_of_a_standby_is_set_aside_and_restored_and_the_thread_goes_on() -> None:
    world = World().logged("1", key="a")
    r = standby(world)
    engine = world.state.stores[A]["counts"].engine
    engine.apply = Mock(side_effect=StateCorruptError("bad block", [StoreId(A, "counts")]))  # type: ignore[method-assign]
    world.logs[LOG].add("2", key="b")
    r.step(4)
    assert world.state.stores[A]["counts"].engine is not engine
    assert r.world.state.text() == {"a": "1", "b": "2"}
    assert world.state.offset(A) == 2


def test_damage_of_another_store_that_is_met_as_one_is_written_costs_that_other_store_only() -> None:
    """What waits of it for the disk is written before what is restored."""
    topology = counting()
    topology.add_state_store(StoreSpec("sums", key_serde=serdes.STRING, value_serde=serdes.LONG), "counting")
    world, sums = World(topology), TopicPartition("app-sums-changelog", 0)
    for changelog in (LOG, sums):
        world.logs[changelog].add("1", key="a")
    r = standby(world)
    storage = world.state.standbys[A]._stores.storage
    stores, apply = dict(world.state.stores[A]), storage.apply

    def applied(batches: Any, offsets: Any) -> None:
        if world.state.stores[A]["counts"] is stores["counts"]:
            raise StateCorruptError("what waits of it can't be written", [StoreId(A, "counts")])
        apply(batches, offsets)

    storage.apply = applied  # type: ignore[method-assign]
    world.logs[sums].add("2", key="b")
    r.step(6)
    assert world.state.stores[A]["sums"] is stores["sums"]
    assert (world.state.text("sums"), world.state.text()) == ({"a": "1", "b": "2"}, {"a": "1"})


def test_a_damaged_store_is_not_taken_for_complete_by_the_end_that_came_with_the_damaged_batch() -> None:
    world = World().logged("1", key="a")
    r = Running(world)
    world.restorer.next.append(Fetched())
    r.rebalance(0)
    while A not in r.loop._restoration._active:  # type: ignore[attr-defined]
        r.step()
    engine = world.state.stores[A]["counts"].engine
    engine.apply = Mock(side_effect=StateCorruptError("bad block", [StoreId(A, "counts")]))  # type: ignore[method-assign]
    r.step(8)
    assert r.places == {A: "processing"}
    assert r.world.state.text() == {"a": "1"}


def test_a_paused_subtopologys_standbys_and_restorations_stand_still_and_go_on_when_resumed() -> None:
    r = Running(World().logged("1", key="a"))
    r.world.logs[LOG_B].add("1", key="b")
    r.world.context.thread_registry.pause({0})
    r.rebalance(1, standby=frozenset({A}), steps=5)
    assert r.world.restorer.assigned == frozenset()
    assert r.places == {A: "standby", B: "restoring"}
    r.world.context.thread_registry.resume({0})
    r.step(5)
    assert r.world.state.text() == {"a": "1"}
    assert r.places == {A: "standby", B: "processing"}


def test_while_an_active_task_has_much_to_restore_standbys_get_a_fifth_of_the_time() -> None:
    r = standby()
    r.world.logs[LOG_B].add(*"x" * 200_000)
    r.world.logs[LOG].add("1", key="a")
    r.world.restorer.next.extend([Fetched()] * 100)
    r.rebalance(1, standby=frozenset({A}), steps=3)
    reading = []
    for _ in range(50):
        r.step(ms=100)
        reading.append(LOG in r.world.restorer.assigned)
    assert 5 <= reading.count(True) <= 15
    assert sum(a != b for a, b in pairwise(reading)) <= 2


def test_an_active_task_with_little_to_restore_takes_no_prefetched_records_from_standbys() -> None:
    r = standby()
    moves = len(r.world.restorer.moves)
    r.world.logs[LOG_B].add(*"xyz")
    r.rebalance(1, standby=frozenset({A}), steps=5)
    assert [move for move in r.world.restorer.moves[moves:] if LOG in move] == []


# -- a source topic as changelog


def test_a_standby_reads_a_source_topic_only_as_far_as_the_group_has_committed() -> None:
    world = World(counting(source_topic="in"))
    world.logs[IN].add("1", key="a").add("2", key="b").add("3", key="c")
    world.commit(IN, 2)
    r = standby(world)
    assert r.world.state.text() == {"a": "1", "b": "2"}
    assert world.state.offset(A) == 2
    world.commit(IN, 3)
    r.step(3, ms=1_000)
    assert r.world.state.text() == {"a": "1", "b": "2", "c": "3"}


def test_a_standby_is_told_how_far_windows_are_emitted_and_drops_no_other() -> None:
    """At least once, the changelog may be ahead of what is emitted."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.STRING, value=serdes.STRING).group_by_key()
    grouped.windowed_by(TimeWindows(50, grace=0), emit="on_close").count("counts")
    world = World(builder.build())

    def log(start: int) -> None:
        entries = world.logs[LOG].entries
        key = b"k" + START_AND_SEQUENCE.pack(start, 0)
        entries.append(world.logs[LOG].message(len(entries), key, serdes.LONG.serialize("", 1), 9))

    def emitted_up_to(time: int) -> None:
        world.commit(IN, 1, OffsetMetadata(9, others={"counts": time}).encode())

    def starts() -> list[int]:
        windows = world.state.content(A, "counts")
        return sorted({int.from_bytes(key[9:17], "big") for key in windows if not key.startswith(b"\xff")})

    emitted_up_to(0)
    r = standby(world)
    for start in (0, 1_000_000):
        log(start)
    r.step(3, ms=1_000)
    assert starts() == [0, 1_000_000]
    emitted_up_to(1_000_000)
    r.step(3, ms=1_000)
    log(1_000_050)
    r.step(3)
    assert starts() == [1_000_000, 1_000_050]


def test_a_standby_of_a_source_topic_that_nobody_has_committed_reads_nothing() -> None:
    world = World(counting(source_topic="in"))
    world.logs[IN].add("1", key="a")
    r = standby(world)
    assert r.world.state.text() == {}
    assert r.tasks.lags() == {A: 0}


def test_a_standby_of_a_source_topic_does_not_say_how_far_it_is_before_it_knows_what_is_committed() -> None:
    world = World(counting(source_topic="in"))
    world.member.holds = True
    r = standby(world)
    assert r.tasks.lags() == {}


def test_a_lost_membership_delays_what_a_standby_may_read_and_no_more() -> None:
    world = World(counting(source_topic="in"))
    world.logs[IN].add("1", key="a")
    world.commit(IN, 1)
    world.member.holds = True
    r = standby(world)
    world.member.answer(error=StaleGenerationError("lost"))
    world.member.holds = False
    r.step(4, ms=1_000)
    assert r.world.state.text() == {"a": "1"}


def test_a_coordinator_that_refuses_to_say_what_a_standby_may_read_ends_the_thread_with_the_reason() -> None:
    world = World(counting(source_topic="in"))
    world.member.holds = True
    r = standby(world)
    world.member.answer(error=MembershipError("OffsetFetch of in: TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(MembershipError, match="TOPIC_AUTHORIZATION_FAILED"):
        r.step(4, ms=1_000)
