"""The housekeeper: questions, purges, old state, calls of the admin client, its end; driven by hand."""

from __future__ import annotations

import errno
import gc
import os
import re
import threading
from concurrent.futures import Future, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from weakref import WeakSet

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from milestones.common.errors import StateError
from milestones.common.kafka.failures import is_passing
from milestones.common.kafka.topics import ALL, Cluster
from milestones.common.mailbox import Mailbox
from milestones.common.records import TaskId, TopicPartition
from milestones.common.state.directory import StateDirectory
from milestones.common.state.engines.by_name import open_engines
from milestones.common.state.spec import StoreSpec
from milestones.common.state.state_manager import LocalStateManager
from milestones.instance import admin_thread
from milestones.instance.admin_thread import (
    WATCH_INTERVAL_MS,
    AskBounds,
    Bounds,
    Purge,
)
from milestones.instance.changelog_trim import STEP_MS, Trim
from milestones.instance.partition_offsets import ALONE_MS, ANSWER_MS
from milestones.testing import until
from tests.common.kafka.fake_cluster import answered
from tests.milestones.fakes import CHANGELOG, IN, A, passing
from tests.milestones.instance.keeping import Client, Keeping, ask

HOUR_MS = 3_600_000


@pytest.mark.parametrize("committed", [True, False])
def test_a_question_is_answered_into_the_mailbox_of_whoever_asked(committed: bool) -> None:
    k, question = Keeping(), ask(committed)
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)})]
    assert k.cluster.listed == [({IN}, False, False), ({IN}, True, committed)]


def test_the_ids_of_the_topics_come_along_when_they_are_asked_for() -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1), topic_ids=True)
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)}, topic_ids={"in": str(Uuid(7, 1))})]


@pytest.mark.parametrize(("time", "offset"), [(5, 5), (7, 7), (8, 8), (900, 8)])
def test_the_first_record_of_a_time_comes_along_or_the_end_where_all_are_older(time: int, offset: int) -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1), since={IN: time})
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {IN: (3, 8)}, since={IN: offset})]


@pytest.mark.parametrize(
    "error",
    [KafkaException(KafkaError(KafkaError._TIMED_OUT)), KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))],
)
def test_a_question_that_kafka_cannot_answer_is_answered_with_its_error(error: Exception) -> None:
    k, question = Keeping(), ask()
    k.step()
    k.cluster.error = error
    k.step(question)
    assert question.reply_to.drain() == [Bounds(A, {}, error)]


def test_somebody_who_no_longer_reads_its_answers_stops_nobody() -> None:
    k, question = Keeping(), AskBounds(A, frozenset({IN}), Mailbox(1))
    for _ in range(3):
        k.step(question)
    assert len(question.reply_to.drain()) == 1


def test_a_purge_is_handed_on() -> None:
    k = Keeping()
    k.step(Purge({IN: 7}))
    assert k.cluster.purged_ == [{IN: 7}]


def test_a_changelog_is_trimmed_to_the_first_record_that_its_store_may_need() -> None:
    k = Keeping(windowstore_changelog_additional_retention_ms=STEP_MS)
    k.cluster.start_searching = lambda times, *, committed: {  # type: ignore[method-assign]
        at: answered(SimpleNamespace(offset=time // STEP_MS)) for at, time in times.items()
    }
    log = TopicPartition(CHANGELOG, 0)
    for request in (Trim({log: 9 * STEP_MS + 5}), None, None):
        k.step(request)
    assert k.cluster.purged_ == [{log: 8}]


def test_a_purge_is_answered_by_a_client_that_another_one_has_replaced_meanwhile() -> None:
    """One that is let go never answers: nothing would be purged any more."""
    k, cluster = Keeping(), Cluster({"bootstrap.servers": "127.0.0.1:1"}, request_timeout_ms=500)
    k.runs = False
    k.keeper._next_watch = 1 << 60
    k.keeper.run_once(cluster, 0, [Purge({IN: 7})])
    assert (under_way := k.keeper._purging) is not None
    cluster.renew()
    assert not wait([under_way], 20).not_done
    k.keeper.run_once(cluster, 0, [Purge({IN: 8})])
    assert k.keeper._purging is not under_way


def test_where_partitions_begin_is_told_by_a_client_that_another_one_has_replaced_meanwhile() -> None:
    k, question = Keeping(), ask()
    k.step(ms=WATCH_INTERVAL_MS)
    k.cluster.leaders, k.cluster.hanging = {IN: 5}, {5}
    asked_of = WeakSet[Any]()
    listing = k.cluster.start_listing

    def start_listing(*args: Any, **kwargs: Any) -> Any:
        asked_of.add(k.cluster.client)
        return listing(*args, **kwargs)

    def start_describing(topics: Any) -> Any:
        found = describing(topics)
        k.cluster.client = Client()  # type: ignore[assignment]
        return found

    describing, k.cluster.start_describing = k.cluster.start_describing, start_describing  # type: ignore[method-assign]
    k.cluster.start_listing = start_listing  # type: ignore[method-assign]
    k.step(question)
    k.cluster.client = None
    gc.collect()
    assert len(asked_of) == 1


def test_questions_that_come_together_share_their_requests() -> None:
    """A thousand tasks that start would be minutes of questions one after the other."""
    k = Keeping()
    k.cluster.counts["in"] = 50
    questions = [AskBounds(TaskId(0, n), frozenset({TopicPartition("in", n)}), Mailbox(1)) for n in range(50)]
    k.step(questions)
    assert all(question.reply_to.drain()[0].error is None for question in questions)
    assert len(k.cluster.listed) == 2


def test_questions_wait_for_the_topics_of_earlier_ones_for_a_while_to_be_put_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k, unknown = Keeping(), Future[Any]()
    monkeypatch.setattr(k.cluster, "start_describing", lambda topics: {"in": unknown})
    k.step(ask())
    monkeypatch.undo()
    later = [ask() for _ in range(3)]
    for question in later:
        k.step(question, ms=100)
    assert not any(question.reply_to.drain() for question in later)
    k.step(ms=ALONE_MS)
    assert all(question.reply_to.drain() for question in later), "one that has no answer holds up nobody for long"
    assert [topics for topics in k.cluster.described if topics == {"in"}] == [{"in"}]


def test_a_leader_that_hangs_holds_up_nobody_elses_questions() -> None:
    k, other = Keeping(), TopicPartition("in", 1)
    k.cluster.leaders, k.cluster.hanging = {IN: 5}, {5}
    stuck, well = ask(), AskBounds(TaskId(0, 1), frozenset({other}), Mailbox(5))
    k.step([stuck, well])
    assert well.reply_to.drain() == [Bounds(TaskId(0, 1), {other: (3, 8)})]
    assert stuck.reply_to.drain() == []
    later = AskBounds(TaskId(0, 1), frozenset({other}), Mailbox(5))
    k.step(later)
    assert later.reply_to.drain()[0].error is None
    k.step(ms=ANSWER_MS)
    (answer,) = stuck.reply_to.drain()
    assert is_passing(answer.error)


def test_a_partition_without_a_leader_is_told_as_such_without_another_request() -> None:
    k, question = Keeping(), ask()
    k.cluster.leaders[IN] = None
    k.step(question)
    assert is_passing(question.reply_to.drain()[0].error)
    assert k.cluster.listed == []


def test_the_state_directory_is_cleaned_ten_times_per_cleanup_delay_at_most_once_a_second() -> None:
    k = Keeping(state_cleanup_delay_ms=100_000)
    for _ in range(21):
        k.step(ms=1_000)
    assert len(k.cleaner.runs) == 3
    k = Keeping(state_cleanup_delay_ms=0)
    for _ in range(10):
        k.step(ms=500)
    assert len(k.cleaner.runs) == 5


def test_nothing_is_cleaned_away_while_tasks_may_be_about_to_be_opened_or_closed_for_the_end() -> None:
    k = Keeping(state_cleanup_delay_ms=0)
    k.runs = False
    k.step(ms=5_000)
    assert not k.cleaner.runs
    k.runs = True
    k.step()
    assert len(k.cleaner.runs) == 1


def test_a_housekeeper_that_dies_tells_the_client_and_refuses_further_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k = Keeping()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    error = StateError("the disk is gone")
    monkeypatch.setattr(k.keeper, "run_once", Mock(side_effect=error))
    k.keeper.run()
    assert k.errors == [error]
    with pytest.raises(StateError, match="the disk is gone"):
        k.keeper.requests.put(ask(), timeout_ms=0)


def test_old_state_that_cannot_be_removed_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the removal raises: nothing depends on it."""
    k = Keeping(state_cleanup_delay_ms=10_000)
    k.cleaner.error = OSError("the disk is gone")
    k.step(cleans=False)
    assert k.keeper._cleaning._outcomes.wait(20_000)
    k.step(cleans=False)
    assert "old state can't be removed now" in caplog.text
    k.cleaner.error = None
    k.step(ms=10_000)
    k.keeper._end_cleaning()
    assert k.cleaner.runs == ["cleaned"]
    assert k.errors == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EBUSY, errno.ENOSPC, errno.ENOTEMPTY], ids=errno.errorcode.get)
def test_a_disk_that_refuses_to_delete_old_state_costs_the_client_nothing_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, number: int
) -> None:
    """With real threads, and stores of RocksDB."""
    k, unlink, refuses = Keeping(state_cleanup_delay_ms=0), os.unlink, threading.Event()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    state = LocalStateManager(StateDirectory(tmp_path, "words", k.world.clock), open_engines("rocksdict"), "m5")
    state.open(A, [StoreSpec("counts")]).close()

    def refused(path: Any, **kwargs: Any) -> None:
        if refuses.is_set() and (str(path).endswith(".lock") or kwargs.get("dir_fd") is not None):
            raise OSError(number, os.strerror(number), str(path))
        unlink(path, **kwargs)

    monkeypatch.setattr(os, "unlink", refused)
    monkeypatch.setattr(k.keeper, "_cleaner", lambda: state.clean(state.directory.now_ms(), 0))
    refuses.set()
    k.keeper.start()
    for text in (f"{A}: {os.strerror(number)}", "their deletion is tried again"):
        until(lambda text=text: text in caplog.text, "the log says it", 60)  # type: ignore[misc]
        k.world.clock.advance(1_000)
    question = ask()
    k.keeper.requests.put(question, timeout_ms=1_000)
    assert question.reply_to.get(60_000) == Bounds(A, {IN: (3, 8)}), "it goes on"
    refuses.clear()
    k.world.clock.advance(1_000)
    until(lambda: not list(state.directory.path.glob(".trash-*")), "the files are deleted", 60)
    k.keeper.close()
    k.keeper.join(60)
    assert (k.errors, state.directory.tasks()) == ([], [])
    state.release()


def test_a_disk_that_does_not_come_back_from_a_removal_is_told_once_and_holds_up_no_question(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admin_thread, "CLEANING_MS", 0)
    k, question, mended = Keeping(state_cleanup_delay_ms=0), ask(), threading.Event()
    k.cleaner.wait_for = mended
    for _ in range(5):
        k.step(ms=5_000, cleans=False)
    k.step(question, cleans=False)
    assert question.reply_to.drain()[0].error is None
    assert [record.getMessage() for record in caplog.records if "old state" in record.getMessage()] == [
        "keeper: old state can't be removed now, or topics be noted; this client tries it no more"
    ]
    mended.set()
    k.keeper._end_cleaning()


def test_where_the_delay_is_long_the_state_directory_is_cleaned_each_hour() -> None:
    """A restart loses what has passed since the last cleaning."""
    k = Keeping(state_cleanup_delay_ms=7 * 24 * HOUR_MS)
    for _ in range(9):
        k.step(ms=HOUR_MS // 4)
    assert len(k.cleaner.runs) == 3


def test_each_topic_of_the_applications_own_is_noted_on_the_disk_once_it_is_seen_by_the_id_that_it_had_first() -> None:
    k = Keeping()
    k.step()
    first = {CHANGELOG: k.cluster._id(CHANGELOG)}
    assert k.noted[-1] == first, "in the first look"
    k.cluster.ids[CHANGELOG] = 8
    k.look()
    assert all(noted == first for noted in k.noted), "one that was made anew isn't"


def test_topics_that_could_not_be_noted_are_noted_with_the_next_cleaning(caplog: pytest.LogCaptureFixture) -> None:
    k = Keeping(state_cleanup_delay_ms=10_000)
    notes = Mock(side_effect=[StateError("the disk is full"), None])
    k.keeper._note = notes
    k.runs = False
    k.step(cleans=False)
    assert k.keeper._cleaning._outcomes.wait(20_000)
    k.step(cleans=False)
    assert "topics be noted; it is tried again later" in caplog.text
    k.runs = True
    k.step(ms=10_000)
    assert notes.call_count == 2
    k.keeper._end_cleaning()


def test_a_call_of_the_admin_client_is_begun_by_the_housekeeper_and_answered_into_its_future() -> None:
    k = Keeping()
    answers = k.admin.ask(lambda cluster: cluster.start_listing([IN], end=True))
    assert k.cluster.listed == [], "the thread that asks touches no client"
    k.step_requests()
    assert answers.result(0)[IN].result().offset == 8


def test_a_call_that_has_no_answer_holds_up_neither_other_calls_nor_questions_nor_purges() -> None:
    k, open_, question = Keeping(), Future[Any](), ask()
    stuck = k.admin.ask(lambda cluster: {"stuck": open_})
    well = k.admin.ask(lambda cluster: cluster.start_listing([IN], end=True))
    k.step_requests(question, Purge({IN: 7}))
    assert (stuck.done(), well.done()) == (False, True)
    assert question.reply_to.drain()[0].error is None
    assert k.cluster.purged_ == [{IN: 7}]


def test_a_look_at_all_topics_that_has_no_answer_holds_up_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    k, question = Keeping(topology=passing((re.compile("in.*"),))), ask()
    monkeypatch.setattr(k.cluster, "start_looking", lambda topics: {ALL: Future[Any]()})
    k.look()
    k.step(question)
    assert question.reply_to.drain()[0].error is None


def test_a_disk_that_is_slow_with_old_state_holds_up_no_question() -> None:
    k, question, mended = Keeping(state_cleanup_delay_ms=0), ask(), threading.Event()
    k.cleaner.wait_for = mended
    k.step(cleans=False)
    k.step(question, ms=5_000, cleans=False)
    assert question.reply_to.drain()[0].error is None
    mended.set()
    k.step()
    assert len(k.cleaner.runs) == 1, "one at a time"


def test_a_housekeeper_with_too_much_to_do_is_an_error_that_passes() -> None:
    k = Keeping()
    k.keeper.requests = Mailbox(1, "requests")
    k.admin.ask(lambda _: {})
    (error,) = (answers.exception(0) for answers in [k.admin.ask(lambda _: {})])
    assert error is not None
    assert is_passing(error)


def test_calls_that_have_no_answer_when_the_housekeeper_dies_get_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    k, error = Keeping(), StateError("the disk is gone")
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    under_way = k.admin.ask(lambda cluster: {"stuck": Future[Any]()})
    k.step_requests()
    waiting = k.admin.ask(lambda cluster: {})

    def die() -> None:
        raise error

    monkeypatch.setattr(k.keeper, "_next_requests", die)
    k.keeper.run()
    assert under_way.exception(0) is waiting.exception(0) is error
    with pytest.raises(StateError):
        k.admin.ask(lambda cluster: {})


def test_state_that_is_being_removed_is_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    k, mended = Keeping(), threading.Event()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    k.cleaner.wait_for = mended
    k.step(cleans=False)
    k.keeper.close()
    k.keeper.start()
    k.keeper.join(0.05)
    assert k.keeper.is_alive()
    mended.set()
    k.keeper.join(20)
    assert not k.keeper.is_alive()
    assert len(k.cleaner.runs) == 1


def test_a_housekeeper_ends_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    k = Keeping()
    monkeypatch.setattr("milestones.instance.admin_thread.Cluster", lambda _: k.cluster)
    k.keeper.close()
    k.keeper.run()
    assert k.errors == []
